#include "core/simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/schedule/schedule.h"
#include "core/simulate/program.h"
#include "core/simulate/runner.h"

namespace paceline {
namespace {

absl::Status CheckCount(absl::string_view what, size_t count,
                        absl::string_view of, size_t there) {
  if (count == 0 || count == there) return absl::OkStatus();
  return InvalidArgument(what, " of ", count, " ", of, ", there are ", there);
}

absl::Status CheckSize(const PlanProblem& problem, const Placement& placement,
                       int steps) {
  if (problem.micro_batches < 1) {
    return InvalidArgument(
        "a simulated step needs micro-batches, got 0: an endless stream has "
        "no step; give a number");
  }
  if (steps < 1) {
    return InvalidArgument("need at least 1 step to simulate, got ", steps);
  }
  // Each factor is far below 2^31 and 2^21.
  const int64_t cells =
      static_cast<int64_t>(placement.size()) * problem.micro_batches;
  if (cells > kMaxSimulatedCells / steps) {
    return InvalidArgument(placement.size(), " stages x ",
                           problem.micro_batches, " micro-batches x ", steps,
                           " steps are too many to simulate, at most ",
                           kMaxSimulatedCells, " together: use fewer steps");
  }
  return absl::OkStatus();
}

absl::Status CheckDeviceOf(const PlanProblem& problem, absl::string_view what,
                           int device) {
  if (device >= 0 && device < static_cast<int>(problem.devices.size())) {
    return absl::OkStatus();
  }
  return InvalidArgument(what, " of device ", device, ": there are ",
                         problem.devices.size(), " devices counted from 0");
}

absl::Status CheckDisturbances(const PlanProblem& problem,
                               const SimulationOptions& options) {
  for (const SimulatedSlowDown& slow : options.slow_downs) {
    PACELINE_RETURN_IF_ERROR(
        CheckDeviceOf(problem, "a slow-down", slow.device));
    PACELINE_RETURN_IF_ERROR(
        CheckAmount("the time of a slow-down", slow.at_seconds));
    if (!(slow.factor >= 1) || !std::isfinite(slow.factor)) {
      return InvalidArgument("a slow-down by factor ", slow.factor,
                             ", need at least 1: 2 is half as fast");
    }
    if (!(slow.for_seconds >= 0)) {
      return InvalidArgument("a slow-down for ", slow.for_seconds,
                             " s, need 0 or more, or infinity");
    }
  }
  for (const SimulatedFailure& failure : options.failures) {
    PACELINE_RETURN_IF_ERROR(
        CheckDeviceOf(problem, "a failure", failure.device));
    PACELINE_RETURN_IF_ERROR(
        CheckAmount("the time of a failure", failure.at_seconds));
    PACELINE_RETURN_IF_ERROR(
        CheckAmount("the time until a failed device is back",
                    failure.recover_after_seconds.value_or(0)));
    if (failure.recover_after_seconds.has_value() && problem.training &&
        ScheduleTraitsOf(options.schedule).asynchronous) {
      return InvalidArgument(
          "a failure with recovery under ", options.schedule,
          ": its steps overlap, so there is none to run again; simulate a "
          "failure for good, or another schedule");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const PlanProblem& problem,
                          const Placement& placement,
                          const SimulationOptions& options) {
  const size_t devices = problem.devices.size();
  PACELINE_RETURN_IF_ERROR(CheckCount("optimizer_seconds",
                                      options.optimizer_seconds.size(),
                                      "stages", placement.size()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("quotas", options.quotas.size(), "devices", devices));
  for (const double seconds : options.optimizer_seconds) {
    PACELINE_RETURN_IF_ERROR(CheckAmount("optimizer_seconds", seconds));
  }
  PACELINE_RETURN_IF_ERROR(CheckAmount("gate_seconds", options.gate_seconds));
  PACELINE_RETURN_IF_ERROR(CheckAmount("load_seconds", options.load_seconds));
  for (const CpuQuota& quota : options.quotas) {
    if (!(quota.share > 0 && quota.share <= 1) ||
        !(quota.period_seconds >= 0 && std::isfinite(quota.period_seconds))) {
      return InvalidArgument(
          "a quota of ", quota.share, " of every ", quota.period_seconds,
          " s, need a share in (0, 1] and a period of 0 (none) or more");
    }
  }
  if (options.credit_frames < 0 || options.micro_batch_samples < 0) {
    return InvalidArgument("credit_frames is ", options.credit_frames,
                           " and micro_batch_samples ",
                           options.micro_batch_samples, ", need 0 or more");
  }
  return CheckDisturbances(problem, options);
}

constexpr int kComputeThread = 0;
constexpr int kFramesThread = 1;
constexpr int kFirstLinkThread = 2;

// Viewers keep whole nanoseconds, and want slices of a track to lie beside each
// other: what is rounded are ends, not durations.
int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string Micros(int64_t nanoseconds) {
  return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
}

std::string NameOf(const TraceSlice& slice) {
  if (slice.what == "STEP") return "STEP";
  absl::string_view verb;
  if (slice.track == TraceTrack::kFrames) {
    verb = slice.receives ? "receive " : "send ";
  }
  return absl::StrCat(verb, slice.what, " ", slice.micro_batch);
}

// Appends lines, a JSON object each.  Thread-compatible.
class Writer {
 public:
  Writer(const PlanProblem& problem, const SimulationTrace& trace)
      : problem_(problem), trace_(trace) {}

  std::string Write() && {
    NumberLinks();
    WriteNames();
    WriteEvents();
    absl::StrAppend(&text_, "\n],\"displayTimeUnit\":\"ms\"}\n");
    return std::move(text_);
  }

 private:
  using Link = std::pair<int, int>;  // from, to

  void NumberLinks() {
    for (const TraceSlice& slice : trace_.slices) {
      used_[slice.device] = true;
      if (slice.peer >= 0) links_[{slice.device, slice.peer}] = 0;
    }
    for (const MemorySample& sample : trace_.memory) {
      used_[sample.device] = true;
    }
    int next = kFirstLinkThread;
    int device = -1;
    for (auto& [link, thread] : links_) {
      if (link.first != device) next = kFirstLinkThread;
      device = link.first;
      thread = next++;
    }
  }

  std::string NameOfDevice(int device) const {
    const std::string& name = problem_.devices[device].name;
    return name.empty() ? absl::StrCat("device ", device) : name;
  }

  void Line(const std::string& line) {
    absl::StrAppend(&text_, text_.empty() ? "{\"traceEvents\":[\n" : ",\n",
                    line);
  }

  void WriteThreadName(int device, int thread, const std::string& name) {
    Line(absl::StrCat("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", device,
                      ",\"tid\":", thread,
                      ",\"args\":{\"name\":", JsonQuoted(name), "}}"));
  }

  void WriteNames() {
    for (const auto& [device, used] : used_) {
      Line(absl::StrCat(
          "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", device,
          ",\"args\":{\"name\":", JsonQuoted(NameOfDevice(device)), "}}"));
      Line(absl::StrCat("{\"name\":\"process_sort_index\",\"ph\":\"M\",",
                        "\"pid\":", device,
                        ",\"args\":{\"sort_index\":", device, "}}"));
      WriteThreadName(device, kComputeThread, "compute");
      WriteThreadName(device, kFramesThread, "frames (CPU)");
    }
    for (const auto& [link, thread] : links_) {
      WriteThreadName(link.first, thread,
                      absl::StrCat("to ", NameOfDevice(link.second)));
    }
    if (text_.empty()) text_ = "{\"traceEvents\":[";
  }

  int ThreadOf(const TraceSlice& slice) const {
    if (slice.track == TraceTrack::kCompute) return kComputeThread;
    if (slice.track == TraceTrack::kFrames) return kFramesThread;
    return links_.at({slice.device, slice.peer});
  }

  void WriteSlice(const TraceSlice& slice) {
    const int64_t begin = Nanoseconds(slice.begin_seconds);
    const int64_t end = Nanoseconds(slice.begin_seconds + slice.seconds);
    Line(absl::StrCat(
        "{\"name\":\"", NameOf(slice), "\",\"ph\":\"X\",\"pid\":", slice.device,
        ",\"tid\":", ThreadOf(slice), ",\"ts\":", Micros(begin),
        ",\"dur\":", Micros(end - begin), ",\"args\":{\"stage\":", slice.stage,
        ",\"step\":", slice.step, "}}"));
  }

  void WriteSample(const MemorySample& sample) {
    Line(absl::StrCat(
        "{\"name\":\"memory\",\"ph\":\"C\",\"pid\":", sample.device,
        ",\"ts\":", Micros(Nanoseconds(sample.at_seconds)),
        ",\"args\":{\"bytes\":", absl::StrFormat("%.0f", sample.bytes), "}}"));
  }

  // Both kinds by time; of one time in the order of the trace.
  void WriteEvents() {
    std::vector<std::pair<double, size_t>> order;
    for (const TraceSlice& slice : trace_.slices) {
      order.emplace_back(slice.begin_seconds, order.size());
    }
    for (const MemorySample& sample : trace_.memory) {
      order.emplace_back(sample.at_seconds, order.size());
    }
    std::ranges::sort(order);
    const size_t slices = trace_.slices.size();
    for (const auto& [at, index] : order) {
      if (index < slices) {
        WriteSlice(trace_.slices[index]);
      } else {
        WriteSample(trace_.memory[index - slices]);
      }
    }
  }

  const PlanProblem& problem_;
  const SimulationTrace& trace_;
  std::map<int, bool> used_;   // devices
  std::map<Link, int> links_;  // their threads
  std::string text_;
};

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const PlanProblem& problem,
                                          const Placement& placement,
                                          const SimulationOptions& options) {
  PACELINE_RETURN_IF_ERROR(CheckProblem(problem));
  PACELINE_RETURN_IF_ERROR(
      CheckPlacement(problem, placement, DeviceHolds::kSeveralStages));
  PACELINE_RETURN_IF_ERROR(CheckSize(problem, placement, options.steps));
  PACELINE_RETURN_IF_ERROR(CheckOptions(problem, placement, options));
  PACELINE_ASSIGN_OR_RETURN(const Program program,
                            MakeProgram(problem, placement, options));
  const std::vector<StageWork> stages =
      WeighStages(problem, placement, options.optimizer_seconds);
  return Runner(problem, options, program, stages).Run();
}

std::string TraceText(const PlanProblem& problem,
                      const SimulationTrace& trace) {
  return Writer(problem, trace).Write();
}

}  // namespace paceline
