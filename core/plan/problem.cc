#include "core/plan/problem.h"

#include <cmath>
#include <cstddef>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

absl::Status CheckAmounts(
    absl::string_view whose,
    std::initializer_list<std::pair<const char*, double>> amounts) {
  for (const auto& [name, value] : amounts) {
    PACELINE_RETURN_IF_ERROR(
        CheckAmount(absl::StrCat(whose, ": ", name), value));
  }
  return absl::OkStatus();
}

absl::Status CheckLayer(const LayerCost& layer, size_t index) {
  const std::string whose =
      absl::StrCat("layer ", index, " (", layer.name, ")");
  PACELINE_RETURN_IF_ERROR(
      CheckAmounts(whose, {{"forward_seconds", layer.forward_seconds},
                           {"backward_seconds", layer.backward_seconds},
                           {"output_bytes", layer.output_bytes},
                           {"decoded_bytes", layer.decoded_bytes},
                           {"parameter_bytes", layer.parameter_bytes},
                           {"borrowed_bytes", layer.borrowed_bytes},
                           {"frozen_bytes", layer.frozen_bytes},
                           {"kept_bytes", layer.kept_bytes}}));
  if (layer.borrowed_bytes <= layer.parameter_bytes) return absl::OkStatus();
  return InvalidArgument(whose, ": borrowed_bytes is ", layer.borrowed_bytes,
                         ", more than all its parameter_bytes, ",
                         layer.parameter_bytes);
}

absl::Status CheckDevice(const PlanProblem& problem, size_t index) {
  const Device& device = problem.devices[index];
  const std::string whose =
      absl::StrCat("device ", index, " (", device.name, ")");
  if (!std::isfinite(device.speed) || !(device.speed > 0)) {
    return InvalidArgument(
        whose, ": speed is ", device.speed,
        ", need a finite number above 0; leave a device out that "
        "cannot compute");
  }
  PACELINE_RETURN_IF_ERROR(CheckAmounts(
      whose, {{"memory_bytes", device.memory_bytes},
              {"frame_seconds", device.frame_seconds},
              {"frame_seconds_per_byte", device.frame_seconds_per_byte}}));
  if (!device.layer_seconds.empty() &&
      device.layer_seconds.size() != problem.layers.size()) {
    return InvalidArgument(whose, ": measured ", device.layer_seconds.size(),
                           " layers, the model has ", problem.layers.size(),
                           ": profile it again");
  }
  for (const double seconds : device.layer_seconds) {
    PACELINE_RETURN_IF_ERROR(CheckAmounts(whose, {{"layer_seconds", seconds}}));
  }
  return absl::OkStatus();
}

absl::Status CheckLink(const PlanProblem& problem, size_t from, size_t to) {
  const LinkCost& link = problem.links[from][to];
  const std::string whose = absl::StrCat("link ", problem.devices[from].name,
                                         " -> ", problem.devices[to].name);
  if (link.bytes_per_second == 0) {
    return InvalidArgument(whose, ": no bandwidth is known, ",
                           problem.links[to][from].bytes_per_second > 0
                               ? "only the other direction is: give both"
                               : "give it or leave one of the two devices out");
  }
  if (!(link.bytes_per_second > 0)) {
    return InvalidArgument(whose, ": bandwidth is ", link.bytes_per_second,
                           ", need bytes per second above 0");
  }
  return CheckAmounts(whose, {{"latency_seconds", link.latency_seconds}});
}

absl::Status CheckLinks(const PlanProblem& problem) {
  const size_t devices = problem.devices.size();
  if (problem.links.size() != devices) {
    return InvalidArgument("bandwidths of ", problem.links.size(),
                           " devices are given, there are ", devices);
  }
  for (size_t from = 0; from < devices; ++from) {
    if (problem.links[from].size() != devices) {
      return InvalidArgument("device ", problem.devices[from].name,
                             " has bandwidths to ", problem.links[from].size(),
                             " devices, there are ", devices);
    }
    for (size_t to = 0; to < devices; ++to) {
      if (from == to) continue;
      PACELINE_RETURN_IF_ERROR(CheckLink(problem, from, to));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(const PlanProblem& problem) {
  if (problem.micro_batches < 0 ||
      problem.micro_batches > kMaxPlannedMicroBatches) {
    return InvalidArgument(
        "a step of ", problem.micro_batches, " micro-batches, need 0 to ",
        kMaxPlannedMicroBatches, ": use larger micro-batches");
  }
  if (problem.micro_batches_per_sync < 0) {
    return InvalidArgument("micro_batches_per_sync is ",
                           problem.micro_batches_per_sync, ", need 0 or more");
  }
  PACELINE_RETURN_IF_ERROR(
      CheckAmounts("memory", {{"parameter_copies", problem.parameter_copies},
                              {"owner_copies", problem.owner_copies},
                              {"version_copies", problem.version_copies},
                              {"input_bytes", problem.input_bytes},
                              {"reserved_bytes", problem.reserved_bytes}}));
  if (problem.owner_copies > problem.parameter_copies) {
    return InvalidArgument("memory: owner_copies is ", problem.owner_copies,
                           ", more than all parameter_copies, ",
                           problem.parameter_copies);
  }
  const int layers = static_cast<int>(problem.layers.size());
  const int devices = static_cast<int>(problem.devices.size());
  for (const TieCost& tie : problem.ties) {
    if (tie.owner < 0 || tie.owner >= tie.user || tie.user >= layers) {
      return InvalidArgument("a tie between layers ", tie.owner, " and ",
                             tie.user, " of ", layers,
                             ": need two of them, the owner first");
    }
    PACELINE_RETURN_IF_ERROR(CheckAmounts("tie", {{"bytes", tie.bytes}}));
  }
  if (problem.stages < 0 || problem.stages > layers) {
    return InvalidArgument(Counted(problem.stages, "stage"), " of ",
                           Counted(layers, "layer"),
                           ": need at least 1, and a layer cannot be cut");
  }
  if (problem.stages > devices) {
    return InvalidArgument(Counted(problem.stages, "stage"), " on ",
                           Counted(devices, "device"),
                           ": a device holds at most one stage here");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAmount(absl::string_view what, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return InvalidArgument(what, " is ", value,
                         ", need a finite number that is not negative");
}

absl::Status CheckProblem(const PlanProblem& problem) {
  if (problem.layers.empty()) {
    return InvalidArgument("the profile has no layers");
  }
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(CheckLayer(problem.layers[i], i));
  }
  if (problem.devices.empty()) {
    return FailedPrecondition(
        "no devices to plan for: start a worker, or give --devices");
  }
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(CheckDevice(problem, i));
  }
  PACELINE_RETURN_IF_ERROR(CheckLinks(problem));
  return CheckCounts(problem);
}

void CountMemoryOf(absl::string_view schedule, PlanProblem& problem) {
  const ScheduleTraits& traits = ScheduleTraitsOf(schedule);
  problem.keeps_all = traits.keeps_all;
  problem.stashes = traits.asynchronous;
  problem.splits = traits.splits;
}

}  // namespace paceline
