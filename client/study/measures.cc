#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/render/report.h"
#include "client/study/study.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/statistics.h"
#include "core/base/text.h"
#include "core/job/spec/job_spec.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const std::vector<Measure>& ShortNames() {
  static const auto& names = *new std::vector<Measure>{
      {"accuracy", Fold::kSum, Unit::kNumber, {"test_accuracy"}, true},
      {"test_loss", Fold::kLast, Unit::kNumber, {"evaluations.loss"}},
      // One batch says little.
      {"loss", Fold::kTail, Unit::kNumber, {"loss.value"}},
      {"time", Fold::kSum, Unit::kSeconds, {"seconds"}},
      {"step_time", Fold::kSum, Unit::kSeconds, {"measured_step_seconds"}},
      {"throughput", Fold::kSum, Unit::kNumber, {"samples_per_second"}, true},
      {"memory", Fold::kMost, Unit::kBytes, {"workers.peak_memory_bytes"}},
      {"bytes", Fold::kSum, Unit::kBytes, {"workers.sent_bytes"}},
      {"cpu",
       Fold::kSum,
       Unit::kSeconds,
       {"workers.flow.compute_cpu", "workers.flow.other_cpu"}},
      {"cosine", Fold::kSum, Unit::kNumber, {"conflict.cosine"}, true},
      {"energy", Fold::kSum, Unit::kNumber, {"workers.energy_joules"}},
      {"update_memory", Fold::kMost, Unit::kBytes, {"workers.update_bytes"}},
      // These want a study with `against`.
      {"speedup", Fold::kSum, Unit::kNumber, {"against.speedup"}, true},
      {"bound", Fold::kSum, Unit::kNumber, {"against.bound"}, true},
      {"fill", Fold::kSum, Unit::kShare, {"against.losses.fill"}},
      {"imbalance", Fold::kSum, Unit::kShare, {"against.losses.imbalance"}},
      {"transfer", Fold::kSum, Unit::kShare, {"against.losses.transfer"}},
      {"slowdown", Fold::kSum, Unit::kShare, {"against.losses.slowdown"}},
      {"unexplained", Fold::kSum, Unit::kShare, {"against.losses.unexplained"}},
  };
  return names;
}

const std::vector<Measure>& PlanMeasures() {
  static const auto& names = *new std::vector<Measure>{
      {"configuration", Fold::kSum, Unit::kText, {"configuration"}},
      {"bottleneck", Fold::kSum, Unit::kSeconds, {"bottleneck"}},
      {"over_one", Fold::kSum, Unit::kNumber, {"over_one"}, true},
      {"speed_up", Fold::kSum, Unit::kNumber, {"speed_up"}, true},
      {"simulated", Fold::kSum, Unit::kSeconds, {"simulated"}},
      {"simulated_speed_up",
       Fold::kSum,
       Unit::kNumber,
       {"simulated_speed_up"},
       true}};
  return names;
}

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

// Among those of a table, whose names are added to `known`.
const Measure* Find(const std::vector<Measure>& table, const std::string& name,
                    std::vector<std::string>& known) {
  for (const Measure& each : table) known.push_back(each.name);
  const auto found = absl::c_find_if(
      table, [&](const Measure& each) { return each.name == name; });
  return found == table.end() ? nullptr : &*found;
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
  if (const auto* const found = Find(ShortNames(), name, known)) return *found;
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
  const Measure* const found = Find(PlanMeasures(), name, known);
  if (found != nullptr) return *found;
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

namespace {

// Shares of a CPU that differ by less are alike: a profile's are measured.
constexpr double kAlikeShares = 0.05;

// The measurements of all workers together.
struct Window {
  int64_t first_us = 0;
  int64_t last_us = 0;
  int64_t micro_batches = 0;
  int64_t samples = 0;
  double seconds = 0;
};

absl::StatusOr<Window> WindowOf(const v1::Job& job) {
  Window window;
  for (const v1::JobWorker& worker : job.workers()) {
    if (!worker.run().has_flow() || worker.run().flow().micro_batches() == 0) {
      return FailedPrecondition("job ", job.id(), ": worker ", worker.name(),
                                " has not said how its micro-batches passed");
    }
    const v1::FlowTimes& flow = worker.run().flow();
    if (window.first_us == 0 || flow.first_unix_us() < window.first_us) {
      window.first_us = flow.first_unix_us();
    }
    window.last_us = std::max(window.last_us, flow.last_unix_us());
    window.micro_batches = std::max(window.micro_batches, flow.micro_batches());
    window.samples = std::max(window.samples, flow.samples());
    window.seconds = std::max(window.seconds, flow.seconds());
  }
  // Batches of training need no common clock.
  if (IsInference(job)) {
    const std::optional<v1::FlowTimes> result = ResultFlow(job);
    window.micro_batches = result.has_value() ? result->micro_batches() : 0;
    window.samples = result.has_value() ? result->samples() : 0;
    window.seconds =
        static_cast<double>(window.last_us - window.first_us) / 1e6;
  }
  if (window.seconds <= 0) {
    return FailedPrecondition("job ", job.id(),
                              " took no time: more micro-batches are needed");
  }
  return window;
}

double CpuShareOf(const CpuShares& shares, const std::string& worker) {
  const auto found = shares.find(worker);
  return found == shares.end() ? 1 : found->second;
}

// Returns the part of a worker's waits that cost it time. It is below 1 where a
// quota stops the worker: the CPU time that it saved while it waited lets it
// compute faster than its share afterwards.
double LostPart(const v1::FlowTimes& flow, double share) {
  const double waits = flow.fill() + flow.starved() + flow.blocked() +
                       flow.data() + flow.in_flight();
  const double regained = flow.compute_cpu() / share - flow.compute();
  if (waits <= 0) return 1;
  return std::clamp(1 - regained / waits, 0.0, 1.0);
}

// Compute that took longer than its CPU time asks for, as far as the threads
// that move frames can have taken the rest.
double Stolen(const v1::FlowTimes& flow, double share) {
  const double longer = flow.compute() - flow.compute_cpu() / share;
  return std::clamp(longer, 0.0, flow.other_cpu() / share);
}

// Returns the seconds of a stage's layers, as the profile has them.
absl::StatusOr<double> LayerSeconds(const v1::Job& job,
                                    const v1::StagePlacement& placement) {
  for (const v1::StageDrift& drift : job.drift()) {
    if (drift.stage() == placement.stage() &&
        drift.worker_id() == placement.worker_id() &&
        drift.layer_seconds() > 0) {
      return drift.layer_seconds();
    }
  }
  return FailedPrecondition(
      "job ", job.id(), " does not say what the layers of stage ",
      placement.stage(), " take on ", placement.worker_name());
}

}  // namespace

double BubblePart(const std::string& schedule, int stages, int workers) {
  // Only the forwards of the first micro-batch are waited for: the last one's
  // weight gradients fill the other end.
  if (ScheduleTraitsOf(schedule).splits) return 1.0 / 3;
  // A worker has work again after a v-th of the pass.
  if (ScheduleTraitsOf(schedule).deals) {
    return static_cast<double>(workers) / stages;
  }
  return 1;
}

double PipelineBound(double one_seconds,
                     const std::vector<double>& stage_seconds,
                     const std::vector<int64_t>& worker_of,
                     double micro_batches, double bubble_part) {
  double once = 0;
  double longest = 0;
  std::map<int64_t, double> loads;
  for (size_t i = 0; i < stage_seconds.size(); ++i) {
    once += stage_seconds[i];
    longest = std::max(longest, loads[worker_of[i]] += stage_seconds[i]);
  }
  if (longest <= 0) return 0;
  if (std::isinf(micro_batches)) return one_seconds / longest;
  return one_seconds * micro_batches /
         (micro_batches * longest + bubble_part * (once - longest));
}

absl::StatusOr<BenchBaseline> BaselineOf(const v1::Job& job) {
  PACELINE_ASSIGN_OR_RETURN(const Window window, WindowOf(job));
  const Placements stages = StagesInOrder(job);
  if (stages.size() != 1) {
    return FailedPrecondition("job ", job.id(),
                              " has not one stage to compare with but ",
                              stages.size());
  }
  PACELINE_ASSIGN_OR_RETURN(const double layers, LayerSeconds(job, stages[0]));
  const auto count = static_cast<double>(window.micro_batches);
  const v1::FlowTimes& flow = job.workers(0).run().flow();
  return BenchBaseline{window.seconds / count,
                       flow.data() / count,
                       layers,
                       flow.compute_cpu() / count,
                       /*drift=*/0,
                       job.workers(0).name()};
}

BenchBaseline MeanOf(const BenchBaseline& a, const BenchBaseline& b) {
  const double seconds = (a.seconds + b.seconds) / 2;
  return {seconds,
          (a.data + b.data) / 2,
          (a.layers + b.layers) / 2,
          (a.cpu + b.cpu) / 2,
          std::abs(a.seconds - b.seconds) / seconds,
          b.worker};
}

namespace {

// Returns the part of the layers' CPU seconds that one worker alone would not
// have needed.
double NeedlessPart(const v1::Job& job, const Window& window,
                    const BenchBaseline& one) {
  double cpu = 0;
  for (const v1::JobWorker& worker : job.workers()) {
    cpu += worker.run().flow().compute_cpu();
  }
  if (one.cpu <= 0 || cpu <= 0) return 0;
  return 1 - one.cpu * static_cast<double>(window.micro_batches) / cpu;
}

// Seconds that the one worker alone would have saved over `cpu` seconds of
// computing at `share`.
double LostToShare(double cpu, double share, double alone) {
  if (std::abs(share / alone - 1) < kAlikeShares) return 0;
  return cpu / share - cpu / alone;
}

// Adds what the workers lost, in seconds.
BenchLosses SecondsLost(const v1::Job& job, const Window& window,
                        const BenchBaseline& one, const CpuShares& shares) {
  BenchLosses lost;
  const double needless = NeedlessPart(job, window, one);
  for (const v1::JobWorker& worker : job.workers()) {
    const v1::FlowTimes& flow = worker.run().flow();
    const double share = CpuShareOf(shares, worker.name());
    const double alone =
        one.worker.empty() ? share : CpuShareOf(shares, one.worker);
    const double part = LostPart(flow, share);
    lost.fill += part * flow.fill();
    if (IsInference(job)) {
      lost.fill += static_cast<double>(flow.first_unix_us() - window.first_us +
                                       window.last_us - flow.last_unix_us()) /
                   1e6;
    }
    lost.imbalance += part * (flow.starved() + flow.blocked() + flow.data());
    lost.transfer += part * flow.in_flight() + Stolen(flow, share);
    lost.slowdown +=
        needless * flow.compute_cpu() / share +
        LostToShare((1 - needless) * flow.compute_cpu(), share, alone);
  }
  return lost;
}

// Micro-batches between two times at which the pipeline is empty.
double MicroBatchesTogether(const v1::Job& job, const Window& window) {
  if (IsInference(job)) return static_cast<double>(window.micro_batches);
  if (ScheduleTraitsOf(job.spec().pipeline().schedule()).asynchronous) {
    return std::numeric_limits<double>::infinity();
  }
  const v1::TrainSpec& train = job.spec().train();
  return static_cast<double>((train.batch() + train.micro_batch() - 1) /
                             train.micro_batch());
}

}  // namespace

absl::StatusOr<BenchRow> RowOf(const v1::Job& job, const BenchBaseline& one,
                               const CpuShares& shares) {
  PACELINE_ASSIGN_OR_RETURN(const Window window, WindowOf(job));
  const Placements stages = StagesInOrder(job);
  BenchRow row;
  row.stages = StageCount(job);
  row.policy = job.spec().pipeline().policy();
  if (!IsInference(job)) row.schedule = job.spec().pipeline().schedule();
  row.workers = static_cast<int>(job.workers().size());
  row.plan = Joined(stages, ", ", [](const v1::StagePlacement& stage) {
    return absl::StrCat("[", stage.first_layer(), ",", stage.last_layer(), ") ",
                        stage.worker_name());
  });
  const auto count = static_cast<double>(window.micro_batches);
  row.seconds = window.seconds;
  row.throughput = static_cast<double>(window.samples) / row.seconds;
  // So that a worker alone is exactly as fast as itself.
  row.speedup = one.seconds / (row.seconds / count);
  row.drift = one.drift;
  std::vector<double> stage_seconds;
  std::vector<int64_t> worker_of;
  for (int i = 0; i < stages.size(); ++i) {
    PACELINE_ASSIGN_OR_RETURN(const double layers,
                              LayerSeconds(job, stages[i]));
    // Each replica adds its share of a micro-batch on average.
    stage_seconds.push_back(layers * ShareOf(stages, i));
    worker_of.push_back(stages[i].worker_id());
  }
  row.bound = PipelineBound(one.layers, stage_seconds, worker_of,
                            MicroBatchesTogether(job, window),
                            BubblePart(row.schedule, row.stages, row.workers));
  BenchLosses lost = SecondsLost(job, window, one, shares);
  // One worker waits for the loader too.
  lost.imbalance = std::max(0.0, lost.imbalance - one.data * count);
  const double all = row.seconds * row.workers;
  row.losses.fill = lost.fill / all;
  row.losses.imbalance = lost.imbalance / all;
  row.losses.transfer = lost.transfer / all;
  row.losses.slowdown = lost.slowdown / all;
  row.losses.unexplained = 1 - row.speedup / row.workers - row.losses.fill -
                           row.losses.imbalance - row.losses.transfer -
                           row.losses.slowdown;
  if (const auto flow = IsInference(job) ? ResultFlow(job) : FlowOf(job, 0)) {
    row.latency_p50 = flow->latency_p50();
    row.latency_p99 = flow->latency_p99();
  }
  return row;
}

Document RowDocument(const BenchRow& row) {
  return {{"stages", row.stages},
          {"policy", row.policy},
          {"schedule", OrNull(row.schedule)},
          {"workers", row.workers},
          {"plan", row.plan},
          {"seconds", row.seconds},
          {"throughput", row.throughput},
          {"speedup", row.speedup},
          {"bound", row.bound},
          {"drift", row.drift},
          {"latency_p50_seconds", OrNull(row.latency_p50)},
          {"latency_p99_seconds", OrNull(row.latency_p99)},
          {"losses", Document{{"fill", row.losses.fill},
                              {"imbalance", row.losses.imbalance},
                              {"transfer", row.losses.transfer},
                              {"slowdown", row.losses.slowdown},
                              {"unexplained", row.losses.unexplained}}}};
}

}  // namespace paceline
