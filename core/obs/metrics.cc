#include "core/obs/metrics.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace paceline {
namespace {

// One declared family: one of the three pointers is set.  prometheus-cpp
// removes a series by its pointer only, so that we keep them.
struct DeclaredFamily {
  std::vector<std::string> label_names;
  std::vector<double> buckets;  // histograms only
  prometheus::Family<prometheus::Counter>* counters = nullptr;
  prometheus::Family<prometheus::Gauge>* gauges = nullptr;
  prometheus::Family<prometheus::Histogram>* histograms = nullptr;
  std::map<LabelValues, void*> series;
};

prometheus::Labels MakeLabels(const std::string& name,
                              const DeclaredFamily& family,
                              const LabelValues& values) {
  PACELINE_CHECK(values.size() == family.label_names.size(), "metric ", name,
                 " has ", family.label_names.size(), " labels, got ",
                 values.size(), " values");
  prometheus::Labels labels;
  for (size_t i = 0; i < values.size(); ++i) {
    labels.emplace(family.label_names[i], values[i]);
  }
  return labels;
}

template <typename Metric>
void RemoveAll(prometheus::Family<Metric>* family,
               const std::map<LabelValues, void*>& series) {
  if (family == nullptr) return;
  for (const auto& [values, metric] : series) {
    family->Remove(static_cast<Metric*>(metric));
  }
}

}  // namespace

struct MetricsRegistry::Impl {
  prometheus::Registry registry;  // locks by itself
  mutable absl::Mutex mutex;
  std::map<std::string, DeclaredFamily> families ABSL_GUARDED_BY(mutex);

  // Declares the family that `pick` points to.
  template <typename Builder, typename Metric>
  void Declare(Builder builder,
               prometheus::Family<Metric>* DeclaredFamily::*pick,
               const std::string& name, const std::string& help,
               std::vector<std::string> labels,
               std::vector<double> buckets = {}) {
    absl::MutexLock lock(&mutex);
    const auto [it, fresh] = families.try_emplace(name);
    PACELINE_CHECK(fresh, "metric ", name, " declared twice");
    it->second.label_names = std::move(labels);
    it->second.buckets = std::move(buckets);
    it->second.*pick = &builder.Name(name).Help(help).Register(registry);
  }

  DeclaredFamily& Find(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto it = families.find(name);
    PACELINE_CHECK(it != families.end(), "metric ", name,
                   " was never declared");
    return it->second;
  }

  // The series of `values` in the family that `pick` points to.
  template <typename Metric>
  void* Get(const std::string& name, const LabelValues& values,
            prometheus::Family<Metric>* DeclaredFamily::*pick) {
    absl::MutexLock lock(&mutex);
    DeclaredFamily& family = Find(name);
    PACELINE_CHECK(family.*pick != nullptr, "metric ", name,
                   " is of another type");
    void*& series = family.series[values];
    if (series != nullptr) return series;
    const prometheus::Labels labels = MakeLabels(name, family, values);
    if constexpr (std::is_same_v<Metric, prometheus::Histogram>) {
      series = &(family.*pick)->Add(labels, family.buckets);
    } else {
      series = &(family.*pick)->Add(labels);
    }
    return series;
  }
};

void Counter::Add(double amount) const {
  PACELINE_CHECK(impl_ != nullptr, "a counter of no registry");
  if (!std::isfinite(amount) || amount < 0) return;
  static_cast<prometheus::Counter*>(impl_)->Increment(amount);
}

void Counter::RaiseTo(double total) const {
  PACELINE_CHECK(impl_ != nullptr, "a counter of no registry");
  Add(total - static_cast<prometheus::Counter*>(impl_)->Value());
}

void Gauge::Set(double value) const {
  PACELINE_CHECK(impl_ != nullptr, "a gauge of no registry");
  static_cast<prometheus::Gauge*>(impl_)->Set(value);
}

void Histogram::Observe(double value) const {
  PACELINE_CHECK(impl_ != nullptr, "a histogram of no registry");
  if (!std::isfinite(value)) return;
  static_cast<prometheus::Histogram*>(impl_)->Observe(value);
}

void Histogram::ObserveMany(const std::vector<double>& counts,
                            double sum) const {
  PACELINE_CHECK(impl_ != nullptr, "a histogram of no registry");
  auto* const histogram = static_cast<prometheus::Histogram*>(impl_);
  const size_t buckets = histogram->Collect().histogram.bucket.size();
  PACELINE_CHECK(counts.size() == buckets, "a histogram of ", buckets,
                 " buckets, got ", counts.size(), " counts");
  const auto good = [](double value) {
    return std::isfinite(value) && value >= 0;
  };
  if (!good(sum) || !std::ranges::all_of(counts, good)) return;
  histogram->ObserveMultiple(counts, sum);
}

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

void MetricsRegistry::DeclareCounter(const std::string& name,
                                     const std::string& help,
                                     std::vector<std::string> labels) {
  impl_->Declare(prometheus::BuildCounter(), &DeclaredFamily::counters, name,
                 help, std::move(labels));
}

void MetricsRegistry::DeclareGauge(const std::string& name,
                                   const std::string& help,
                                   std::vector<std::string> labels) {
  impl_->Declare(prometheus::BuildGauge(), &DeclaredFamily::gauges, name, help,
                 std::move(labels));
}

void MetricsRegistry::DeclareHistogram(const std::string& name,
                                       const std::string& help,
                                       std::vector<double> buckets,
                                       std::vector<std::string> labels) {
  PACELINE_CHECK(std::ranges::is_sorted(buckets, std::less_equal<>()),
                 "buckets of ", name, " must ascend");
  impl_->Declare(prometheus::BuildHistogram(), &DeclaredFamily::histograms,
                 name, help, std::move(labels), std::move(buckets));
}

Counter MetricsRegistry::GetCounter(const std::string& name,
                                    const LabelValues& labels) {
  return Counter(impl_->Get(name, labels, &DeclaredFamily::counters));
}

Gauge MetricsRegistry::GetGauge(const std::string& name,
                                const LabelValues& labels) {
  return Gauge(impl_->Get(name, labels, &DeclaredFamily::gauges));
}

Histogram MetricsRegistry::GetHistogram(const std::string& name,
                                        const LabelValues& labels) {
  return Histogram(impl_->Get(name, labels, &DeclaredFamily::histograms));
}

void MetricsRegistry::RemoveSeries(
    const std::string& name, const std::optional<std::string>& first_label) {
  absl::MutexLock lock(&impl_->mutex);
  DeclaredFamily& family = impl_->Find(name);
  std::map<LabelValues, void*> gone;
  for (const auto& [values, metric] : family.series) {
    const auto first =
        values.empty() ? absl::string_view() : absl::string_view(values[0]);
    if (!first_label || first == *first_label) gone[values] = metric;
  }
  for (const auto& [values, metric] : gone) family.series.erase(values);
  RemoveAll(family.counters, gone);
  RemoveAll(family.gauges, gone);
  RemoveAll(family.histograms, gone);
}

std::string MetricsRegistry::Text() const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  // prometheus-cpp keeps series in a hash table; people read them in order.
  for (prometheus::MetricFamily& family : families) {
    std::ranges::sort(family.metric, [](const prometheus::ClientMetric& a,
                                        const prometheus::ClientMetric& b) {
      return a.label < b.label;
    });
  }
  return prometheus::TextSerializer().Serialize(families);
}

namespace {

int OpenFiles() {
  std::error_code error;
  int files = -1;  // the one that reads the folder
  for (std::filesystem::directory_iterator file("/proc/self/fd", error), end;
       !error && file != end; file.increment(error)) {
    ++files;
  }
  return files;
}

}  // namespace

ProcessMetrics::ProcessMetrics(MetricsRegistry& registry)
    : registry_(registry) {
  registry.DeclareCounter(kProcessCpu, "CPU seconds of all threads.");
  registry.DeclareGauge(kProcessMemory, "Resident memory.");
  registry.DeclareGauge(kProcessFiles, "Open files and sockets.");
  registry.DeclareGauge(kProcessThreads, "Threads.");
  registry.DeclareGauge(kProcessStart, "Unix time at which it started.");
  registry.GetGauge(kProcessStart)
      .Set(absl::ToDoubleSeconds(SystemClock().Today() - absl::UnixEpoch()));
  Update();
}

void ProcessMetrics::Update() {
  timespec cpu = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  registry_.GetCounter(kProcessCpu)
      .RaiseTo(absl::ToDoubleSeconds(absl::DurationFromTimespec(cpu)));
  registry_.GetGauge(kProcessFiles).Set(OpenFiles());
  std::ifstream status("/proc/self/status");
  std::string word;
  double value = 0;
  while (status >> word) {
    if (word == "VmRSS:" && status >> value) {
      registry_.GetGauge(kProcessMemory).Set(value * 1024);
    } else if (word == "Threads:" && status >> value) {
      registry_.GetGauge(kProcessThreads).Set(value);
    }
  }
}

}  // namespace paceline
