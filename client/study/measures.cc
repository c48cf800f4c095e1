#include "client/study/measures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/render/report.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/statistics.h"
#include "core/job/spec/job_spec.h"

namespace paceline {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct ShortName {
  const char* name;
  Fold fold;
  Unit unit;
  const char* paths;  // with blanks between
  bool more_is_better = false;
};

constexpr ShortName kShortNames[] = {
    {"accuracy", Fold::kSum, Unit::kNumber, "test_accuracy", true},
    {"test_loss", Fold::kLast, Unit::kNumber, "evaluations.loss"},
    // One batch says little.
    {"loss", Fold::kTail, Unit::kNumber, "loss.value"},
    {"time", Fold::kSum, Unit::kSeconds, "seconds"},
    {"step_time", Fold::kSum, Unit::kSeconds, "measured_step_seconds"},
    {"throughput", Fold::kSum, Unit::kNumber, "samples_per_second", true},
    {"memory", Fold::kMost, Unit::kBytes, "workers.peak_memory_bytes"},
    {"bytes", Fold::kSum, Unit::kBytes, "workers.sent_bytes"},
    {"cpu", Fold::kSum, Unit::kSeconds,
     "workers.flow.compute_cpu workers.flow.other_cpu"},
    {"cosine", Fold::kSum, Unit::kNumber, "conflict.cosine", true},
    {"energy", Fold::kSum, Unit::kNumber, "workers.energy_joules"},
    {"update_memory", Fold::kMost, Unit::kBytes, "workers.update_bytes"},
    // These want a study with `against`.
    {"speedup", Fold::kSum, Unit::kNumber, "against.speedup", true},
    {"bound", Fold::kSum, Unit::kNumber, "against.bound", true},
    {"fill", Fold::kSum, Unit::kShare, "against.losses.fill"},
    {"imbalance", Fold::kSum, Unit::kShare, "against.losses.imbalance"},
    {"transfer", Fold::kSum, Unit::kShare, "against.losses.transfer"},
    {"slowdown", Fold::kSum, Unit::kShare, "against.losses.slowdown"},
    {"unexplained", Fold::kSum, Unit::kShare, "against.losses.unexplained"},
};

constexpr ShortName kPlanMeasures[] = {
    {"configuration", Fold::kSum, Unit::kText, "configuration"},
    {"bottleneck", Fold::kSum, Unit::kSeconds, "bottleneck"},
    {"over_one", Fold::kSum, Unit::kNumber, "over_one", true},
    {"speed_up", Fold::kSum, Unit::kNumber, "speed_up", true},
    {"simulated", Fold::kSum, Unit::kSeconds, "simulated"},
    {"simulated_speed_up", Fold::kSum, Unit::kNumber, "simulated_speed_up",
     true}};

constexpr std::pair<const char*, Fold> kFolds[] = {
    {"max ", Fold::kMost}, {"mean ", Fold::kMean}, {"last ", Fold::kLast}};

// Gives a message one of everything, so that its document has every key.
void FillIn(Message& message) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.message_type() == nullptr) continue;
    FillIn(field.is_repeated()
               ? *message.GetReflection()->AddMessage(&message, &field)
               : *message.GetReflection()->MutableMessage(&message, &field));
  }
}

const Document& ExampleJob() {
  static const Document* const example = [] {
    v1::Job job;
    FillIn(job);
    return new Document(JobDocument(job));
  }();
  return *example;
}

// Calls `take` with every value at a path; keys of lists are those of their
// elements.
void ForEachAt(const Document& document, absl::string_view path,
               absl::FunctionRef<void(const Document&)> take) {
  if (document.is_array()) {
    for (const Document& each : document) ForEachAt(each, path, take);
  } else if (path.empty()) {
    take(document);
  } else if (document.is_object()) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(path, absl::MaxSplits('.', 1));
    const auto found = document.find(std::string(parts.first));
    if (found != document.end()) ForEachAt(*found, parts.second, take);
  } else if (document.is_null()) {
    take(document);
  }
}

std::vector<double> NumbersAt(const Document& document,
                              absl::string_view path) {
  std::vector<double> numbers;
  ForEachAt(document, path, [&](const Document& value) {
    if (value.is_number()) numbers.push_back(value.get<double>());
  });
  return numbers;
}

double Folded(const std::vector<double>& numbers, Fold fold) {
  switch (fold) {
    case Fold::kSum:
      return absl::c_accumulate(numbers, 0.0);
    case Fold::kMost:
      return *absl::c_max_element(numbers);
    case Fold::kMean:
      return Mean(numbers);
    case Fold::kLast:
      return numbers.back();
    case Fold::kTail:
      break;
  }
  const auto tail = static_cast<std::ptrdiff_t>((numbers.size() + 9) / 10);
  return Mean({numbers.end() - tail, numbers.end()});
}

Measure MeasureOf(const ShortName& known) {
  return {known.name, known.fold, known.unit,
          absl::StrSplit(known.paths, ' ', absl::SkipEmpty()),
          known.more_is_better};
}

Unit UnitOf(absl::string_view path) {
  if (absl::EndsWith(path, "seconds") || absl::StrContains(path, "seconds.")) {
    return Unit::kSeconds;
  }
  return absl::EndsWith(path, "bytes") ? Unit::kBytes : Unit::kNumber;
}

}  // namespace

Document JobDocument(const v1::Job& job) {
  Document document = ToDocument(job, /*with_curve=*/true);
  document["seconds"] = NullUnless(
      job.started_unix_ms() > 0 && job.ended_unix_ms() > 0,
      1e-3 * static_cast<double>(job.ended_unix_ms() - job.started_unix_ms()));
  return document;
}

absl::StatusOr<Measure> FindMeasure(const std::string& name) {
  std::vector<std::string> known;
  for (const ShortName& each : kShortNames) {
    known.emplace_back(each.name);
    if (name == each.name) return MeasureOf(each);
  }
  const Document& split = ExampleJob()["workers"][0]["seconds"];
  if (split.contains(name)) {
    return Measure{name,
                   Fold::kSum,
                   Unit::kShare,
                   {absl::StrCat("workers.seconds.", name)},
                   /*more_is_better=*/false,
                   "workers.seconds.wall"};
  }
  Measure measure = {.name = name};
  absl::string_view path = name;
  for (const auto& [word, fold] : kFolds) {
    if (absl::ConsumePrefix(&path, word)) measure.fold = fold;
  }
  measure.unit = UnitOf(path);
  measure.paths = {std::string(path)};
  bool is_number = false;
  ForEachAt(ExampleJob(), path, [&](const Document& value) {
    is_number = value.is_number() || value.is_null();
  });
  if (is_number && !path.empty()) return measure;
  for (const Document& part : {ExampleJob(), split}) {
    for (const auto& [key, value] : part.items()) {
      if (value.is_number()) known.push_back(key);
    }
  }
  return InvalidArgument(
      "nothing measures '", Printable(name), "'", MeantText(name, known),
      "; it takes accuracy, loss, time, step_time, memory and others, or the "
      "path of a number in 'job show -o json', as workers.flow.starved");
}

absl::StatusOr<Measure> FindPlanMeasure(const std::string& name) {
  std::vector<std::string> known;
  for (const ShortName& each : kPlanMeasures) {
    known.emplace_back(each.name);
    if (name == each.name) return MeasureOf(each);
  }
  return InvalidArgument(WhyNotAmong("measure of a plan", name, known));
}

std::optional<double> ValueIn(const Document& job, const Measure& measure) {
  double sum = 0;
  for (const std::string& path : measure.paths) {
    const std::vector<double> numbers = NumbersAt(job, path);
    if (numbers.empty()) return std::nullopt;
    sum += Folded(numbers, measure.fold);
  }
  if (std::isnan(sum)) return std::numeric_limits<double>::infinity();
  if (measure.per.empty()) return sum;
  const double whole = absl::c_accumulate(NumbersAt(job, measure.per), 0.0);
  if (!(whole > 0)) return std::nullopt;
  return sum / whole;
}

std::string ValueText(double value, Unit unit) {
  switch (unit) {
    case Unit::kShare:
      return absl::StrFormat("%.1f %%", 100 * value);
    case Unit::kSeconds:
      return value < 1000 ? HumanSeconds(value)
                          : HumanDuration(absl::Seconds(value));
    case Unit::kBytes:
      return HumanBytes(value);
    case Unit::kNumber:
    case Unit::kText:
      break;
  }
  return HumanNumber(value);
}

ValueSpread SpreadOf(const std::vector<double>& values) {
  const auto [least, most] = absl::c_minmax_element(values);
  return {Median(values), *least, *most, static_cast<int>(values.size())};
}

std::string SpreadText(const ValueSpread& spread, Unit unit) {
  const std::string median = ValueText(spread.median, unit);
  if (spread.count < 2) return median;
  std::string least = ValueText(spread.least, unit);
  std::string most = ValueText(spread.most, unit);
  const std::string end =
      median.substr(std::min(median.find(' '), median.size()));
  if (absl::EndsWith(least, end) && absl::EndsWith(most, end)) {
    least.resize(least.size() - end.size());
    most.resize(most.size() - end.size());
  }
  return absl::StrCat(median, " (", least, "..", most, ")");
}

}  // namespace paceline
