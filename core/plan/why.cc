#include "core/plan/why.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/plan/cost_table.h"
#include "core/plan/memory.h"
#include "core/plan/stage_memory.h"

namespace paceline {
namespace {

std::string Names(const PlanProblem& problem, const std::vector<int>& devices) {
  std::vector<std::string> names;
  for (const int device : devices) {
    names.push_back(problem.devices[device].name);
  }
  return FewNames(names);
}

std::vector<int> LeftOut(const PlanProblem& problem,
                         const Placement& placement) {
  std::vector<bool> used(problem.devices.size(), false);
  for (const PlacedStage& stage : placement) {
    for (const int device : stage.devices) used[device] = true;
  }
  std::vector<int> left_out;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) left_out.push_back(static_cast<int>(i));
  }
  return left_out;
}

// Returns the least step time with `device` in one stage, as a replica or in
// place of that stage's devices.
double SecondsWithOneMore(const PlanProblem& problem,
                          const Placement& placement, int device) {
  const CostTable table(problem);
  double least = HUGE_VAL;
  for (size_t s = 0; s < placement.size(); ++s) {
    for (const bool replica : {true, false}) {
      if (replica && !problem.replicas) continue;
      Placement changed = placement;
      std::vector<int>& devices = changed[s].devices;
      if (!replica) devices.clear();
      devices.insert(std::upper_bound(devices.begin(), devices.end(), device),
                     device);
      changed[s].shares = SharesFor(table, changed[s].layers, devices);
      least = std::min(least, SecondsIfItFits(problem, changed));
    }
  }
  return least;
}

std::string LeftOutText(const PlanProblem& problem, const PlanAnswer& answer) {
  // Each device tried costs stages x CostOf.
  constexpr size_t kMostTried = 16;
  const std::vector<int> left_out = LeftOut(problem, answer.placement);
  if (left_out.empty()) return "all devices are used";
  double least = HUGE_VAL;
  for (size_t i = 0; i < std::min(left_out.size(), kMostTried); ++i) {
    least = std::min(
        least, SecondsWithOneMore(problem, answer.placement, left_out[i]));
  }
  const bool one = left_out.size() == 1;
  const std::string who = absl::StrCat(Names(problem, left_out),
                                       one ? " is left out" : " are left out");
  const double now = answer.cost.step_seconds;
  if (!std::isfinite(least)) return absl::StrCat(who, ": no stage fits there");
  if (least <= now) {
    return absl::StrCat(who, one ? ": it" : ": they", " would change nothing");
  }
  return absl::StrCat(who, one ? ": with it" : ": with one of them",
                      " a step would take at least ", SecondsText(least - now),
                      " more");
}

std::string QualityText(const PlanAnswer& answer, bool predicted) {
  if (answer.exact) {
    return predicted ? "proved to be the best by the predicted times of "
                       "layers; the real times may differ"
                     : "proved to be the best";
  }
  return absl::StrFormat(
      "not proved to be the best; at most %.3g %% above what is possible",
      100 * answer.gap);
}

struct Hardest {
  int layer = 0;
  double bytes = 0;         // needed at the best number of replicas
  double excess_bytes = 0;  // over the largest device; negative: it fits
};

double LeastBytes(const PlanProblem& problem, int layer) {
  double least = HUGE_VAL;
  const int most =
      problem.replicas ? static_cast<int>(problem.devices.size()) : 1;
  for (int replicas = 1; replicas <= most; ++replicas) {
    least = std::min(least,
                     StageBytes(problem, {layer, layer + 1}, {replicas, 0, 0}));
  }
  return least;
}

}  // namespace

std::string SecondsText(double seconds) {
  return absl::StrFormat("%.4g s", seconds);
}

std::string BoundText(const PlanProblem& problem, const Placement& placement,
                      const PlacementCost& cost) {
  const std::vector<double>& seconds = cost.stage_seconds;
  const size_t slowest =
      std::max_element(seconds.begin(), seconds.end()) - seconds.begin();
  const double bottleneck = cost.bottleneck_seconds;
  const PlacedStage& stage = placement[slowest];
  if (!problem.overlap && placement.size() > 1) {
    return absl::StrCat("compute and transfers of one stage take ",
                        SecondsText(bottleneck),
                        " a micro-batch and set the pace; "
                        "the most compute, ",
                        SecondsText(seconds[slowest]), ", is that of layers ",
                        stage.layers.first, "..", stage.layers.last - 1, " on ",
                        Names(problem, stage.devices));
  }
  if (seconds[slowest] >= bottleneck) {
    return absl::StrCat(
        "layers ", stage.layers.first, "..", stage.layers.last - 1, " on ",
        Names(problem, stage.devices),
        " set the pace: ", SecondsText(bottleneck), " a micro-batch");
  }
  const std::vector<double>& delays = cost.transfer_seconds;
  const size_t cut =
      std::max_element(delays.begin(), delays.end()) - delays.begin();
  return absl::StrCat("a transfer sets the pace: ", SecondsText(bottleneck),
                      " a micro-batch; the longest is from ",
                      Names(problem, placement[cut].devices), " to ",
                      Names(problem, placement[cut + 1].devices),
                      " after layer ", placement[cut].layers.last - 1);
}

std::string FewNames(const std::vector<std::string>& names) {
  constexpr size_t kMostNames = 4;
  const size_t shown = std::min(names.size(), kMostNames);
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + shown, ", "),
                      names.size() > shown
                          ? absl::StrCat(" and ", names.size() - shown, " more")
                          : "");
}

std::string WhyOf(const PlanProblem& problem, const PlanAnswer& answer,
                  bool predicted) {
  return absl::StrCat(BoundText(problem, answer.placement, answer.cost), "; ",
                      LeftOutText(problem, answer), ". The plan is ",
                      QualityText(answer, predicted), ".");
}

absl::Status NothingFits(const PlanProblem& problem) {
  double largest = 0;
  double total = 0;
  size_t who = 0;
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    const double bytes = problem.devices[i].memory_bytes;
    total += bytes == 0 ? HUGE_VAL : bytes;
    if (bytes <= largest) continue;
    largest = bytes;
    who = i;
  }
  Hardest hardest;
  double needed = 0;
  for (size_t l = 0; l < problem.layers.size(); ++l) {
    const double bytes = LeastBytes(problem, static_cast<int>(l));
    needed += FixedBytes(problem, problem.layers[l]) +
              (SegmentLayers(problem) == 0 ? problem.layers[l].kept_bytes : 0);
    if (bytes <= hardest.bytes) continue;
    hardest = {static_cast<int>(l), bytes, bytes - largest};
  }
  const std::string layer = absl::StrCat(
      "layer ", hardest.layer, " (", problem.layers[hardest.layer].name, ")");
  const std::string largest_device = problem.devices[who].name;
  if (hardest.excess_bytes > 0) {
    return ResourceExhausted(
        "no plan fits: ", layer, " alone needs ", BytesTextOfSum(hardest.bytes),
        ", the largest device, ", largest_device, ", has ",
        BytesTextOfSum(largest), ": ", BytesTextOfSum(hardest.excess_bytes),
        " too much; use a smaller micro-batch or a larger device");
  }
  return ResourceExhausted(
      "no plan fits: all layers need at least ", BytesTextOfSum(needed),
      " together, the devices have ", BytesTextOfSum(total),
      "; the hardest to place, ", layer, ", needs ",
      BytesTextOfSum(hardest.bytes), " of the ", BytesTextOfSum(largest),
      " of ", largest_device,
      "; use more devices, fewer stages or a smaller micro-batch");
}

}  // namespace paceline
