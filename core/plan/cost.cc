#include "core/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/memory.h"
#include "core/plan/stage_memory.h"
#include "core/plan/ties.h"

namespace paceline {
namespace {

// Shares are computed by division: this is their rounding, with room.
constexpr double kShareSlack = 1e-9;

std::string Text(double bytes) {
  constexpr double kMostBytes = 9e18;  // fits int64_t
  return BytesText(static_cast<int64_t>(std::min(bytes, kMostBytes)));
}

int BoundariesOf(const PlanProblem& problem, LayerRange layers) {
  return (layers.first > 0) +
         (layers.last < static_cast<int>(problem.layers.size()));
}

// Bytes over both boundaries of a stage, one way.
double BoundaryBytes(const PlanProblem& problem, LayerRange layers) {
  double bytes = 0;
  if (layers.first > 0) bytes += problem.layers[layers.first - 1].output_bytes;
  if (layers.last < static_cast<int>(problem.layers.size())) {
    bytes += problem.layers[layers.last - 1].output_bytes;
  }
  return bytes;
}

double ParameterBytes(const PlanProblem& problem, LayerRange layers) {
  double bytes = 0;
  for (int layer = layers.first; layer < layers.last; ++layer) {
    bytes += problem.layers[layer].parameter_bytes;
  }
  return bytes;
}

// Per micro-batch.
double SyncSeconds(const PlanProblem& problem, const PlacedStage& stage) {
  const double replicas = static_cast<double>(stage.devices.size());
  if (!problem.training || replicas < 2) return 0;
  double bytes_per_second = HUGE_VAL;
  double latency = 0;
  for (const int from : stage.devices) {
    for (const int to : stage.devices) {
      if (from == to) continue;
      const LinkCost& link = problem.links[from][to];
      bytes_per_second = std::min(bytes_per_second, link.bytes_per_second);
      latency = std::max(latency, link.latency_seconds);
    }
  }
  int64_t every = problem.micro_batches_per_sync;
  if (every == 0) every = std::max<int64_t>(problem.micro_batches, 1);
  const double bytes = ParameterBytes(problem, stage.layers);
  return (2 * (replicas - 1) / replicas * bytes / bytes_per_second +
          2 * (replicas - 1) * latency) /
         static_cast<double>(every);
}

double StageSeconds(const PlanProblem& problem, const PlacedStage& stage) {
  double compute = 0;
  for (size_t i = 0; i < stage.devices.size(); ++i) {
    compute = std::max(
        compute,
        stage.shares[i] * WorkSeconds(problem, stage.layers, stage.devices[i]));
  }
  const double sync = SyncSeconds(problem, stage);
  return problem.overlap ? std::max(compute, sync) : compute + sync;
}

struct Transfer {
  double occupied = 0;  // o
  double delay = 0;     // x
};

Transfer TransferBetween(const PlanProblem& problem, const PlacedStage& left,
                         const PlacedStage& right) {
  const double bytes = problem.layers[left.layers.last - 1].output_bytes;
  Transfer transfer;
  std::vector<double> right_port(right.devices.size(), 0);
  for (size_t u = 0; u < left.devices.size(); ++u) {
    double left_port = 0;
    for (size_t v = 0; v < right.devices.size(); ++v) {
      const LinkCost& there = problem.links[left.devices[u]][right.devices[v]];
      const LinkCost& back = problem.links[right.devices[v]][left.devices[u]];
      const double share = left.shares[u] * right.shares[v];
      double seconds = bytes / there.bytes_per_second;
      double latency = there.latency_seconds;
      if (problem.training) {
        seconds += bytes / back.bytes_per_second;
        latency += back.latency_seconds;
      }
      left_port += share * seconds;
      right_port[v] += share * seconds;
      transfer.delay += share * (seconds + latency);
    }
    transfer.occupied = std::max(transfer.occupied, left_port);
  }
  for (const double busy : right_port) {
    transfer.occupied = std::max(transfer.occupied, busy);
  }
  return transfer;
}

std::string NameOf(const PlacedStage& stage) {
  return absl::StrCat("the stage of layers ", stage.layers.first, "..",
                      stage.layers.last);
}

absl::Status CheckShares(const PlacedStage& stage) {
  if (stage.devices.empty() || stage.devices.size() != stage.shares.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(stage), " has ", stage.devices.size(), " devices and ",
        stage.shares.size(), " shares, need as many of both and at least one"));
  }
  double total = 0;
  for (const double share : stage.shares) {
    if (!(share > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          NameOf(stage), " has a share ", share, ", need more than 0"));
    }
    total += share;
  }
  if (std::abs(total - 1) <= kShareSlack) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the shares of ", NameOf(stage), " sum to ", total, ", not 1"));
}

// largest_stage: [devices], the replicas of the largest stage that each holds.
absl::Status CheckDevices(const PlanProblem& problem, const PlacedStage& stage,
                          DeviceHolds holds, std::vector<int>& largest_stage) {
  const int replicas = static_cast<int>(stage.devices.size());
  for (const int device : stage.devices) {
    if (device < 0 || device >= static_cast<int>(problem.devices.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("no device ", device, ", there are ",
                       problem.devices.size(), " counted from 0"));
    }
    int& largest = largest_stage[device];
    const std::string& name = problem.devices[device].name;
    if (largest > 0 && holds == DeviceHolds::kOneStage) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", name, " is used twice"));
    }
    if (largest > 0 && (largest > 1 || replicas > 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", name,
                       " is used twice, and one of its stages has replicas: a "
                       "replica holds one stage only"));
    }
    largest = replicas;
  }
  return absl::OkStatus();
}

double Bottleneck(const PlanProblem& problem, const PlacementCost& cost,
                  const std::vector<Transfer>& transfers) {
  double most = 0;
  for (size_t s = 0; s < cost.stage_seconds.size(); ++s) {
    double busy = cost.stage_seconds[s];
    if (!problem.overlap) {
      if (s > 0) busy += transfers[s - 1].delay;
      if (s < transfers.size()) busy += transfers[s].delay;
    }
    most = std::max(most, busy);
  }
  if (problem.overlap) {
    for (const Transfer& transfer : transfers) {
      most = std::max(most, transfer.occupied);
    }
  }
  return most;
}

void FillMemory(const PlanProblem& problem, const Placement& placement,
                PlacementCost& cost) {
  cost.memory_bytes.assign(problem.devices.size(), 0);
  StagePlace place;
  for (const PlacedStage& stage : placement) {
    place.later_devices += static_cast<int>(stage.devices.size());
  }
  for (const PlacedStage& stage : placement) {
    place.replicas = static_cast<int>(stage.devices.size());
    place.later_devices -= place.replicas;
    const double bytes = StageBytes(problem, stage.layers, place);
    for (const int device : stage.devices) cost.memory_bytes[device] = bytes;
    place.earlier_devices += place.replicas;
  }
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

double WorkSeconds(const PlanProblem& problem, LayerRange layers, int device) {
  const Device& on = problem.devices[device];
  const double frames_each_way = problem.training ? 2 : 1;
  return LayerSeconds(problem, layers, device) +
         frames_each_way *
             (BoundariesOf(problem, layers) * on.frame_seconds +
              BoundaryBytes(problem, layers) * on.frame_seconds_per_byte);
}

std::vector<double> SharesFor(const PlanProblem& problem, LayerRange layers,
                              const std::vector<int>& devices) {
  std::vector<double> shares(devices.size(),
                             1.0 / static_cast<double>(devices.size()));
  if (!problem.uneven_shares) return shares;
  std::vector<double> rates;
  double total = 0;
  for (const int device : devices) {
    const double work = WorkSeconds(problem, layers, device);
    if (!(work > 0)) return shares;
    rates.push_back(1 / work);
    total += rates.back();
  }
  for (size_t i = 0; i < devices.size(); ++i) shares[i] = rates[i] / total;
  return shares;
}

absl::Status CheckPlacement(const PlanProblem& problem,
                            const Placement& placement, DeviceHolds holds) {
  std::vector<int> largest_stage(problem.devices.size(), 0);
  int next = 0;
  for (const PlacedStage& stage : placement) {
    if (stage.layers.first != next || stage.layers.last <= next) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a stage holds layers ", stage.layers.first, "..", stage.layers.last,
          ", expected one that starts at ", next, " and is not empty"));
    }
    next = stage.layers.last;
    PACELINE_RETURN_IF_ERROR(CheckShares(stage));
    PACELINE_RETURN_IF_ERROR(
        CheckDevices(problem, stage, holds, largest_stage));
  }
  if (next == static_cast<int>(problem.layers.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the stages hold ", next,
                                                 " layers, the model has ",
                                                 problem.layers.size()));
}

absl::StatusOr<PlacementCost> CostOf(const PlanProblem& problem,
                                     const Placement& placement) {
  PACELINE_RETURN_IF_ERROR(
      CheckPlacement(problem, placement, DeviceHolds::kOneStage));
  PlacementCost cost;
  std::vector<Transfer> transfers;
  double sum = 0;
  for (size_t s = 0; s < placement.size(); ++s) {
    cost.stage_seconds.push_back(StageSeconds(problem, placement[s]));
    sum += cost.stage_seconds.back();
    if (s + 1 == placement.size()) break;
    transfers.push_back(
        TransferBetween(problem, placement[s], placement[s + 1]));
    cost.transfer_seconds.push_back(transfers.back().delay);
    sum += transfers.back().delay;
  }
  cost.bottleneck_seconds = Bottleneck(problem, cost, transfers);
  cost.step_seconds = problem.micro_batches == 0
                          ? cost.bottleneck_seconds
                          : sum +
                                static_cast<double>(problem.micro_batches - 1) *
                                    cost.bottleneck_seconds +
                                TieSeconds(problem, placement);
  FillMemory(problem, placement, cost);
  return cost;
}

absl::Status CheckMemory(const PlanProblem& problem, const Placement& placement,
                         const PlacementCost& cost) {
  for (const PlacedStage& stage : placement) {
    for (const int index : stage.devices) {
      const Device& device = problem.devices[index];
      const double need = cost.memory_bytes[index];
      if (device.memory_bytes == 0 || need <= device.memory_bytes) continue;
      return absl::ResourceExhaustedError(absl::StrCat(
          "device ", device.name, " has ", Text(device.memory_bytes),
          ", its layers ", stage.layers.first, "..", stage.layers.last - 1,
          " (", problem.layers[stage.layers.first].name, " to ",
          problem.layers[stage.layers.last - 1].name, ") need ", Text(need),
          ": ", Text(need - device.memory_bytes),
          " too much; use more devices or a smaller micro-batch"));
    }
  }
  return absl::OkStatus();
}

}  // namespace paceline
