#include "core/simulate/estimate.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "core/plan/why.h"
#include "core/schedule/route.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// Stages x micro-batches x steps that take a coordinator some milliseconds.
constexpr int64_t kCells = 20'000;
// Micro-batches that stand for a stream of unknown length.
constexpr int64_t kEndless = 1'000;
constexpr int kSteps = 3;  // the first fills caches and is not counted

// CPU of a step's reports and verdicts: those of all other workers pass
// through the first stage's.
double GateSeconds(const PlanInputs& inputs, const Placement& placement) {
  const int first = placement.front().devices.front();
  std::set<int> others;
  for (const PlacedStage& stage : placement) {
    others.insert(stage.devices.begin(), stage.devices.end());
  }
  others.erase(first);
  double slowest = 0;
  for (const int device : others) {
    slowest = std::max(slowest, inputs.facts[device].gate_seconds);
  }
  return slowest +
         inputs.facts[first].gate_seconds * static_cast<double>(others.size());
}

// Micro-batches come in multiples of this.
int64_t GroupOf(const JobSpec& spec, const std::vector<EstimateStage>& stages) {
  if (!ScheduleTraitsOf(spec.pipeline.schedule).deals) return 1;
  std::set<int> workers;
  for (const EstimateStage& stage : stages) workers.insert(stage.worker);
  return std::ssize(workers);
}

int64_t WholeGroups(int64_t micro_batches, int64_t group) {
  return std::max(group, micro_batches / group * group);
}

// Returns how many of `count` micro-batches `worker` computes.
int64_t OwnMicroBatches(const Placement& placement, const EstimateStage& stage,
                        int64_t count) {
  for (const PlacedStage& placed : placement) {
    if (placed.layers != stage.layers) continue;
    const auto at = std::ranges::find(placed.devices, stage.worker);
    const Turns turns = {MakeRouteTable(placed.shares),
                         static_cast<int>(at - placed.devices.begin())};
    int64_t own = 0;
    for (int64_t m = 0; m < count; ++m) own += turns.Has(m) ? 1 : 0;
    return own;
  }
  return count;
}

// A quota stops a thread at irregular times (where the kernel looks, and where
// the last stop was late); one of a fixed period would have the steps of a
// simulation fall into step with it, and be off by up to a period each.
constexpr int kQuotaPeriods = 12;
constexpr double kShortestPeriod = 0.75;  // of the measured one
constexpr double kLongestPeriod = 1.25;

bool HasQuota(const SimulationOptions& options) {
  return std::ranges::any_of(options.quotas, [](const CpuQuota& quota) {
    return quota.period_seconds > 0 && quota.share < 1;
  });
}

// The mean of simulations with other periods on every device each; of the
// result step, bubbles and the devices' compute.
absl::StatusOr<SimulationResult> SimulateMean(
    const PlanProblem& problem, const Placement& placement,
    const SimulationOptions& options) {
  if (!HasQuota(options)) return Simulate(problem, placement, options);
  SimulationResult mean;
  for (int i = 0; i < kQuotaPeriods; ++i) {
    SimulationOptions other = options;
    for (size_t d = 0; d < other.quotas.size(); ++d) {
      // Evenly spread over the range, in another order on every device.
      const auto turn = (static_cast<size_t>(i) * 5 + d * 7) % kQuotaPeriods;
      other.quotas[d].period_seconds *=
          kShortestPeriod + (kLongestPeriod - kShortestPeriod) *
                                (static_cast<double>(turn) + 0.5) /
                                kQuotaPeriods;
    }
    PACELINE_ASSIGN_OR_RETURN(SimulationResult result,
                              Simulate(problem, placement, other));
    if (i == 0) {
      mean = std::move(result);
      continue;
    }
    mean.step_seconds += result.step_seconds;
    mean.bubble_share += result.bubble_share;
    for (size_t d = 0; d < mean.devices.size(); ++d) {
      mean.devices[d].forward_seconds += result.devices[d].forward_seconds;
      mean.devices[d].backward_seconds += result.devices[d].backward_seconds;
    }
  }
  mean.step_seconds /= kQuotaPeriods;
  mean.bubble_share /= kQuotaPeriods;
  for (DeviceUse& use : mean.devices) {
    use.forward_seconds /= kQuotaPeriods;
    use.backward_seconds /= kQuotaPeriods;
  }
  return mean;
}

// Uses CPU times in place of the wall times that a quota stretches them to.
void UseCpuTimes(PlanInputs& inputs) {
  for (size_t d = 0; d < inputs.facts.size(); ++d) {
    const DeviceFacts& facts = inputs.facts[d];
    if (facts.quota_period_seconds <= 0) continue;
    Device& device = inputs.problem.devices[d];
    for (double& seconds : device.layer_seconds) seconds *= facts.cpu_share;
    device.frame_seconds *= facts.cpu_share;
    device.frame_seconds_per_byte *= facts.cpu_share;
  }
}

// RunEstimate::layer_seconds of one stage; `inputs` as a planner sees them.
double OwnSeconds(const JobSpec& spec, const PlanInputs& inputs,
                  const EstimateStage& stage) {
  double seconds = LayerSeconds(inputs.problem, stage.layers, stage.worker);
  if (IsInference(spec) ||
      !ScheduleTraitsOf(spec.pipeline.schedule).asynchronous) {
    return seconds;
  }
  const DeviceFacts& facts = inputs.facts[stage.worker];
  const double share = facts.quota_period_seconds > 0 ? facts.cpu_share : 1;
  for (int layer = stage.layers.first; layer < stage.layers.last; ++layer) {
    seconds += facts.update_seconds[layer] / share;
  }
  return seconds;
}

}  // namespace

Placement PlacementOf(const std::vector<EstimateStage>& stages) {
  Placement placement;
  for (const EstimateStage& stage : stages) {
    if (placement.empty() || placement.back().layers != stage.layers) {
      placement.push_back({stage.layers, {}, {}});
    }
    placement.back().devices.push_back(stage.worker);
    placement.back().shares.push_back(stage.share);
  }
  for (PlacedStage& stage : placement) {
    const double sum =
        std::accumulate(stage.shares.begin(), stage.shares.end(), 0.0);
    for (double& share : stage.shares) share /= sum;
  }
  return placement;
}

SimulationOptions OptionsFor(const JobSpec& spec, const Placement& placement,
                             PlanInputs& inputs) {
  UseCpuTimes(inputs);
  SimulationOptions options;
  options.schedule = spec.pipeline.schedule;
  options.vertical_sync = spec.pipeline.vertical_sync;
  options.micro_batch_samples = spec.train.micro_batch;
  // The gate waits for what is shared, and so does the step after it.
  options.gate_seconds =
      GateSeconds(inputs, placement) + TieSeconds(inputs.problem, placement);
  for (const PlacedStage& stage : placement) {
    double slowest = 0;
    for (const int device : stage.devices) {
      const std::vector<double>& update = inputs.facts[device].update_seconds;
      slowest = std::max(
          slowest, std::accumulate(update.begin() + stage.layers.first,
                                   update.begin() + stage.layers.last, 0.0));
    }
    options.optimizer_seconds.push_back(slowest);
  }
  for (const DeviceFacts& facts : inputs.facts) {
    options.quotas.push_back({facts.cpu_share, facts.quota_period_seconds});
  }
  return options;
}

absl::StatusOr<RunEstimate> EstimateRun(
    const JobSpec& spec, const ModelDescription& model,
    const std::vector<EstimateStage>& stages,
    const std::vector<InputWorker>& workers, const Measurements& measurements) {
  PlanInputs inputs = MakePlanInputs(spec, model, workers, measurements);
  RunEstimate estimate;
  for (const EstimateStage& stage : stages) {
    estimate.layer_seconds.push_back(OwnSeconds(spec, inputs, stage));
  }
  const Placement placement = PlacementOf(stages);
  if (auto cost = CostOf(inputs.problem, placement); cost.ok()) {
    estimate.bound = BoundText(inputs.problem, placement, *cost);
  }
  SimulationOptions options = OptionsFor(spec, placement, inputs);
  const bool inference = IsInference(spec);
  options.steps = inference ? 1 : kSteps;

  const bool counted = inputs.problem.micro_batches > 0;
  const int64_t all = counted ? inputs.problem.micro_batches : kEndless;
  const int64_t unit = GroupOf(spec, stages);
  const int64_t cells = HasQuota(options) ? kCells / kQuotaPeriods : kCells;
  const int64_t count = WholeGroups(
      std::clamp<int64_t>(
          cells / (options.steps * static_cast<int64_t>(stages.size())), 1,
          all),
      unit);
  inputs.problem.micro_batches = count;
  PACELINE_ASSIGN_OR_RETURN(const SimulationResult result,
                            SimulateMean(inputs.problem, placement, options));
  estimate.step_seconds = result.step_seconds;
  const int64_t fewer = WholeGroups(count / 2 + 1, unit);
  if (fewer < count && count < all) {
    inputs.problem.micro_batches = fewer;
    PACELINE_ASSIGN_OR_RETURN(const SimulationResult half,
                              SimulateMean(inputs.problem, placement, options));
    const double each = (result.step_seconds - half.step_seconds) /
                        static_cast<double>(count - fewer);
    estimate.step_seconds += each * static_cast<double>(all - count);
  } else if (count < all) {
    // Groups so large that there is one length only to go by.
    estimate.step_seconds *=
        static_cast<double>(all) / static_cast<double>(count);
  }
  const double samples = inference
                             ? static_cast<double>(all * spec.train.micro_batch)
                             : static_cast<double>(spec.train.batch);
  estimate.samples_per_second = samples / estimate.step_seconds;
  // A stream of unknown length has only a rate.
  if (!counted) estimate.step_seconds = 0;
  estimate.bubble_share = result.bubble_share;
  for (const EstimateStage& stage : stages) {
    const DeviceUse& use = result.devices[stage.worker];
    double mine = 0, all_of_it = 0;
    for (const EstimateStage& other : stages) {
      if (other.worker != stage.worker) continue;
      const double work =
          LayerSeconds(inputs.problem, other.layers, other.worker);
      all_of_it += work;
      if (other.layers == stage.layers) mine = work;
    }
    const double busy = use.forward_seconds + use.backward_seconds;
    const int64_t own =
        options.steps * OwnMicroBatches(placement, stage, count);
    estimate.stage_seconds.push_back(all_of_it > 0 && own > 0
                                         ? busy * mine / all_of_it /
                                               static_cast<double>(own)
                                         : 0);
  }
  estimate.source = std::move(inputs.source);
  estimate.measured = inputs.measured;
  return estimate;
}

}  // namespace paceline
