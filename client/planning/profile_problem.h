// Measured profiles as what a policy is asked, without a coordinator.  Pure.
#pragma once

#include "absl/status/statusor.h"
#include "client/planning/profile_source.h"
#include "core/plan/inputs.h"

namespace paceline {

// Devices are those of source.profiles, in their order; layers, times and links
// as measured.  An endless stream of micro-batches; parameters twice (with
// their gradients): a profile does not know the optimizer.
//
// Errors: InvalidArgument  a pair of devices whose link is in neither direction
//         or only in one of them: names both
absl::StatusOr<PlanInputs> InputsOfProfiles(const ProfileSource& source);

// The layers of one profile, on a device of speed 1.
std::vector<LayerCost> LayersOf(const DeviceProfile& profile);

}  // namespace paceline
