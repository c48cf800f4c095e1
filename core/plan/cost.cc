#include "core/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/plan/cost_table.h"
#include "core/plan/memory.h"

namespace paceline {
namespace {

// The largest rounding error of a sum of shares, which come from divisions.
constexpr double kShareSlack = 1e-9;

std::string NameOf(const PlacedStage& stage) {
  return absl::StrCat("the stage of layers ", stage.layers.first, "..",
                      stage.layers.last);
}

absl::Status CheckShares(const PlacedStage& stage) {
  if (stage.devices.empty() || stage.devices.size() != stage.shares.size()) {
    return InvalidArgument(NameOf(stage), " has ", stage.devices.size(),
                           " devices and ", stage.shares.size(),
                           " shares, need as many of both and at least one");
  }
  double total = 0;
  for (const double share : stage.shares) {
    if (!(share > 0)) {
      return InvalidArgument(NameOf(stage), " has a share ", share,
                             ", need more than 0");
    }
    total += share;
  }
  if (std::abs(total - 1) <= kShareSlack) return absl::OkStatus();
  return InvalidArgument("the shares of ", NameOf(stage), " sum to ", total,
                         ", not 1");
}

// largest_stage: [devices], the number of replicas in the largest stage that
// each device holds.
absl::Status CheckDevices(const PlanProblem& problem, const PlacedStage& stage,
                          DeviceHolds holds, std::vector<int>& largest_stage) {
  const int replicas = static_cast<int>(stage.devices.size());
  for (const int device : stage.devices) {
    if (device < 0 || device >= static_cast<int>(problem.devices.size())) {
      return InvalidArgument("no device ", device, ", there are ",
                             problem.devices.size(), " counted from 0");
    }
    int& largest = largest_stage[device];
    const std::string& name = problem.devices[device].name;
    if (largest > 0 && holds == DeviceHolds::kOneStage) {
      return InvalidArgument("device ", name, " is used twice");
    }
    if (largest > 0 && (largest > 1 || replicas > 1)) {
      return InvalidArgument(
          "device ", name,
          " is used twice, and one of its stages has replicas: a "
          "replica holds one stage only");
    }
    largest = replicas;
  }
  return absl::OkStatus();
}

const PlacedStage& StageWith(const Placement& placement, int layer) {
  const auto found = std::find_if(
      placement.begin(), placement.end(),
      [&](const PlacedStage& stage) { return layer < stage.layers.last; });
  return found == placement.end() ? placement.back() : *found;
}

}  // namespace

double LayerSeconds(const PlanProblem& problem, LayerRange layers, int device) {
  const Device& on = problem.devices[device];
  double seconds = 0;
  for (int layer = layers.first; layer < layers.last; ++layer) {
    if (!on.layer_seconds.empty()) {
      seconds += on.layer_seconds[layer];
      continue;
    }
    seconds += problem.layers[layer].forward_seconds / on.speed;
    if (problem.training) {
      seconds += problem.layers[layer].backward_seconds / on.speed;
    }
  }
  return seconds;
}

double TieSeconds(const PlanProblem& problem, const Placement& placement) {
  if (!problem.training) return 0;
  double sum = 0;
  for (const TieCost& tie : problem.ties) {
    const PlacedStage& owner = StageWith(placement, tie.owner);
    const PlacedStage& user = StageWith(placement, tie.user);
    if (owner.layers == user.layers) continue;
    double longest = 0;
    for (const int o : owner.devices) {
      for (const int u : user.devices) {
        if (o == u) continue;  // two stages of one device
        const LinkCost& there = problem.links[u][o];
        const LinkCost& back = problem.links[o][u];
        longest =
            std::max(longest, tie.bytes / there.bytes_per_second +
                                  tie.bytes / back.bytes_per_second +
                                  there.latency_seconds + back.latency_seconds);
      }
    }
    sum += longest;
  }
  return sum;
}

absl::Status CheckPlacement(const PlanProblem& problem,
                            const Placement& placement, DeviceHolds holds) {
  std::vector<int> largest_stage(problem.devices.size(), 0);
  int next = 0;
  for (const PlacedStage& stage : placement) {
    if (stage.layers.first != next || stage.layers.last <= next) {
      return InvalidArgument(
          "a stage holds layers ", stage.layers.first, "..", stage.layers.last,
          ", expected one that starts at ", next, " and is not empty");
    }
    next = stage.layers.last;
    PACELINE_RETURN_IF_ERROR(CheckShares(stage));
    PACELINE_RETURN_IF_ERROR(
        CheckDevices(problem, stage, holds, largest_stage));
  }
  if (next == static_cast<int>(problem.layers.size())) return absl::OkStatus();
  return InvalidArgument("the stages hold ", next, " layers, the model has ",
                         problem.layers.size());
}

absl::StatusOr<PlacementCost> CostOf(const PlanProblem& problem,
                                     const Placement& placement) {
  PACELINE_RETURN_IF_ERROR(
      CheckPlacement(problem, placement, DeviceHolds::kOneStage));
  PlacementCost cost = UntiedCostOf(CostTable(problem), placement);
  if (problem.micro_batches > 0) {
    cost.step_seconds += TieSeconds(problem, placement);
  }
  return cost;
}

absl::Status CheckMemory(const PlanProblem& problem, const Placement& placement,
                         const PlacementCost& cost) {
  for (const PlacedStage& stage : placement) {
    for (const int index : stage.devices) {
      const Device& device = problem.devices[index];
      const double need = cost.memory_bytes[index];
      if (device.memory_bytes == 0 || need <= device.memory_bytes) continue;
      return ResourceExhausted(
          "device ", device.name, " has ", BytesTextOfSum(device.memory_bytes),
          ", its layers ", stage.layers.first, "..", stage.layers.last - 1,
          " (", problem.layers[stage.layers.first].name, " to ",
          problem.layers[stage.layers.last - 1].name, ") need ",
          BytesTextOfSum(need), ": ",
          BytesTextOfSum(need - device.memory_bytes),
          " too much; use more devices or a smaller micro-batch");
    }
  }
  return absl::OkStatus();
}

double SecondsIfItFits(const PlanProblem& problem, const Placement& placement) {
  const absl::StatusOr<PlacementCost> cost = CostOf(problem, placement);
  const bool fits = cost.ok() && CheckMemory(problem, placement, *cost).ok();
  return fits ? cost->step_seconds : HUGE_VAL;
}

}  // namespace paceline
