#include "core/plan/machines.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr size_t kMostLevels = 2;

absl::Status NoNumber(absl::string_view what, absl::string_view text,
                      absl::string_view example) {
  return InvalidArgument(what, " '", absl::CHexEscape(text.substr(0, 40)),
                         "': need numbers like ", example);
}

absl::Status CheckLevels(const Machines& machines) {
  const size_t levels = machines.sizes.size();
  if (levels < 1 || levels > kMostLevels) {
    return InvalidArgument(
        "machines of ", levels,
        " levels, need 1 (devices) or 2 (devices in a machine x machines)");
  }
  if (machines.bytes_per_second.size() != levels) {
    return InvalidArgument(
        machines.bytes_per_second.size(), " bandwidths for ", levels,
        levels == 1 ? " level" : " levels",
        " of machines, need one for each, the inner one first");
  }
  return absl::OkStatus();
}

}  // namespace

int Machines::devices() const {
  int devices = 1;
  for (const int size : sizes) devices *= size;
  return devices;
}

absl::StatusOr<Machines> ParseMachines(absl::string_view sizes,
                                       absl::string_view bandwidths,
                                       absl::string_view memory) {
  Machines machines;
  for (const absl::string_view text : absl::StrSplit(sizes, 'x')) {
    int size = 0;
    if (!absl::SimpleAtoi(text, &size)) {
      return NoNumber("machines", sizes, "16 or 4x4");
    }
    machines.sizes.push_back(size);
  }
  for (const absl::string_view text : absl::StrSplit(bandwidths, ',')) {
    double bandwidth = 0;
    if (!absl::SimpleAtod(text, &bandwidth)) {
      return NoNumber("bandwidth", bandwidths,
                      "1.25e9 or 1e10,1.25e9 (bytes a second)");
    }
    machines.bytes_per_second.push_back(bandwidth);
  }
  if (!memory.empty() && !absl::SimpleAtod(memory, &machines.memory_bytes)) {
    return NoNumber("memory", memory, "16e9 (bytes)");
  }
  PACELINE_RETURN_IF_ERROR(CheckMachines(machines));
  return machines;
}

absl::Status CheckMachines(const Machines& machines) {
  PACELINE_RETURN_IF_ERROR(CheckLevels(machines));
  int64_t devices = 1;
  for (const int size : machines.sizes) {
    if (size < 1) {
      return InvalidArgument("a level of ", size, " machines, need at least 1");
    }
    devices *= size;
  }
  if (devices > kMostMachineDevices) {
    return InvalidArgument(devices, " devices, at most ", kMostMachineDevices,
                           " are planned");
  }
  for (const double bandwidth : machines.bytes_per_second) {
    if (bandwidth >= 1) continue;  // false for a NaN too
    return InvalidArgument("a bandwidth of ", bandwidth,
                           " bytes a second, need at least 1");
  }
  if (!std::isfinite(machines.memory_bytes) || machines.memory_bytes < 0) {
    return InvalidArgument("memory of ", machines.memory_bytes,
                           " bytes, need a positive number, or 0 for no bound");
  }
  return absl::OkStatus();
}

void PutMachines(const Machines& machines, PlanProblem& problem) {
  const int devices = machines.devices();
  const int in_machine = machines.sizes[0];
  problem.devices.assign(devices, Device());
  for (int i = 0; i < devices; ++i) {
    Device& device = problem.devices[i];
    device.machine = machines.levels() == 1 ? i : i / in_machine;
    device.memory_bytes = machines.memory_bytes;
    device.name = machines.levels() == 1
                      ? absl::StrCat(i)
                      : absl::StrCat(device.machine, ".", i % in_machine);
  }
  problem.links.assign(devices, std::vector<LinkCost>(devices));
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      const bool near = from / in_machine == to / in_machine;
      problem.links[from][to].bytes_per_second =
          near ? machines.bytes_per_second[0]
               : machines.bytes_per_second.back();
    }
  }
}

}  // namespace paceline
