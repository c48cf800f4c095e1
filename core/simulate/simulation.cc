#include "core/simulate/simulation.h"

#include <cmath>

#include "absl/status/status.h"
#include "core/base/errors.h"
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

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const PlanProblem& problem,
                                          const Placement& placement,
                                          const SimulationOptions& options) {
  PACELINE_RETURN_IF_ERROR(CheckProblem(problem));
  PACELINE_RETURN_IF_ERROR(
      CheckPlacement(problem, placement, DeviceHolds::kSeveralStages));
  PACELINE_RETURN_IF_ERROR(CheckSize(problem, placement, options.steps));
  PACELINE_RETURN_IF_ERROR(CheckOptions(problem, placement, options));
  PACELINE_ASSIGN_OR_RETURN(
      const Program program,
      MakeProgram(placement,
                  {.schedule = options.schedule,
                   .micro_batches = static_cast<int>(problem.micro_batches),
                   .steps = options.steps,
                   .training = problem.training}));
  const std::vector<StageWork> stages =
      WeighStages(problem, placement, options.optimizer_seconds);
  return Runner(problem, options, program, stages).Run();
}

}  // namespace paceline
