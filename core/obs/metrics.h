// Prometheus metrics without Prometheus in the header.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace paceline {

// Label values of one series, in the order of the family's label names.
using LabelValues = std::vector<std::string>;

// Thread-safe handles.  They are cheap to copy and valid as long as the
// registry.  A handle that came from no registry must not be used.
class Series {
 public:
  explicit Series(void* impl = nullptr) : impl_(impl) {}

 protected:
  void* impl_;
};
struct Counter : Series {
  using Series::Series;
  // An amount that is negative or no number is ignored: a counter only grows.
  void Add(double amount = 1) const;
  // Adds what is missing to `total`, which one thread at a time says.
  void RaiseTo(double total) const;
};
struct Gauge : Series {
  using Series::Series;
  void Set(double value) const;
};
struct Histogram : Series {
  using Series::Series;
  // NaN and infinity are ignored: they would spoil the sum for good.
  void Observe(double value) const;
  // Adds values that were observed elsewhere.  counts: the number of values in
  // each bucket, and above the last bound.  Another number of buckets is a
  // broken invariant.  sum: the sum of all these values.  Does nothing if the
  // sum or a count is negative or not a number.
  void ObserveMany(const std::vector<double>& counts, double sum) const;
};

// Thread-safe.  Families are declared once, where the daemon's metrics.h names
// them; a second declaration of a name, and the use of one with the wrong type
// or number of labels, is a broken invariant.
class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();

  // Declares a family.
  void DeclareCounter(const std::string& name, const std::string& help,
                      std::vector<std::string> labels = {});
  void DeclareGauge(const std::string& name, const std::string& help,
                    std::vector<std::string> labels = {});
  void DeclareHistogram(const std::string& name, const std::string& help,
                        std::vector<double> buckets,
                        std::vector<std::string> labels = {});

  // The series of a declared family; made when first asked for.
  Counter GetCounter(const std::string& name, const LabelValues& labels = {});
  Gauge GetGauge(const std::string& name, const LabelValues& labels = {});
  Histogram GetHistogram(const std::string& name,
                         const LabelValues& labels = {});

  // Drops every series of a family, or those whose first label has this value
  // (a job that has ended).  Their handles must not be used again.
  void RemoveSeries(const std::string& name,
                    const std::optional<std::string>& first_label = {});

  // The text exposition format 0.0.4.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --- metrics of the process, under the names of Prometheus' own libraries ---

inline constexpr char kProcessCpu[] = "process_cpu_seconds_total";
inline constexpr char kProcessMemory[] = "process_resident_memory_bytes";
inline constexpr char kProcessFiles[] = "process_open_fds";
inline constexpr char kProcessThreads[] = "process_threads";
inline constexpr char kProcessStart[] = "process_start_time_seconds";

// Reads /proc/self.  Thread-compatible: one caller at a time.
class ProcessMetrics {
 public:
  // `registry` outlives this.  The process counts as started now.
  explicit ProcessMetrics(MetricsRegistry& registry);

  // Sets all of them anew.
  void Update();

 private:
  MetricsRegistry& registry_;
};

}  // namespace paceline
