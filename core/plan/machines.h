// Machines as people write them: "4x4", bandwidths inside and between them,
// memory.  Values, a parser, and the devices and links of a planning problem.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/problem.h"

namespace paceline {

// With one level, all devices are linked alike.  With two levels, devices form
// machines, as with -n and -b of the released PipeDream optimizer.
struct Machines {
  std::vector<int> sizes;                // [levels], the inner one first
  std::vector<double> bytes_per_second;  // [levels]; infinity: free
  double memory_bytes = 0;               // of a device; 0: no bound

  int levels() const { return static_cast<int>(sizes.size()); }
  int devices() const;

  friend bool operator==(const Machines&, const Machines&) = default;
};

inline constexpr int kMostMachineDevices = 1024;

// `sizes` "16" or "4x4", `bandwidths` "1.25e9" or "1e10,1.25e9" (bytes a
// second), `memory` "16e9" (bytes) or empty.
//
// Errors: InvalidArgument  not numbers, and those of CheckMachines.
absl::StatusOr<Machines> ParseMachines(absl::string_view sizes,
                                       absl::string_view bandwidths,
                                       absl::string_view memory);

// Errors: InvalidArgument  no level or more than two; not one bandwidth for
// each; a size below 1; more than kMostMachineDevices devices; a bandwidth
// below 1; memory that is negative or not finite.
absl::Status CheckMachines(const Machines& machines);

// Sets problem.devices ("0.0" is the first device of the first machine, "0"
// with one level) and problem.links, without latencies.  `machines` has passed
// CheckMachines.  O(devices^2).
void PutMachines(const Machines& machines, PlanProblem& problem);

}  // namespace paceline
