// Reads the file of `plan --profile FILE`: a published layer graph, the output
// of `profile -o json`, or a plan file. Values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/files/plan_file.h"
#include "client/values/document.h"
#include "core/plan/inputs.h"
#include "core/plan/measurement.h"
#include "core/plan/pipedream/graph_profile.h"

namespace paceline {

// One of graph, plan and profiles.
struct ProfileSource {
  std::string name;  // of the file
  std::optional<GraphProfile> graph;
  std::optional<PlanFile> plan;
  std::vector<DeviceProfile> profiles;  // of one model and micro-batch
  std::vector<LinkMeasurement> links;
};

// `profiles[], links[]`, as `profile -o json` prints them.
Document ProfilesDocument(std::vector<DeviceProfile> profiles,
                          std::vector<LinkMeasurement> links);

// Text that begins with '{' is JSON: a plan file when it has `problem`, else
// what `profile -o json` prints (`profiles`, and `links` where there are any).
// Anything else is the published graph format
// (core/plan/pipedream/graph_profile.h).
//
// Errors: InvalidArgument  names the file and the field or line: not the
//         format, a number that is missing, negative or not finite, two
//         profiles of one device, profiles of different models or micro-batches
absl::StatusOr<ProfileSource> ParseProfileFile(const std::string& name,
                                               const std::string& text);

// Errors: InvalidArgument  as above, and a file that cannot be read
absl::StatusOr<ProfileSource> ReadProfileFile(const std::string& path);

// Measured profiles as what a policy is asked, without a coordinator.  Pure.

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
