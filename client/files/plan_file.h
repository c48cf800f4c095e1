// Files of plans and of profiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/values/document.h"
#include "core/plan/cost.h"
#include "core/plan/inputs.h"
#include "core/plan/measurement.h"
#include "core/plan/pipedream/graph_profile.h"
#include "core/plan/problem.h"

namespace paceline {

// A plan with all that it was made from: what `plan --save` writes, `simulate
// --plan` runs and `job submit --plan` follows.  It does not say `measured`.
struct PlanFile : PlanInputs {
  Placement placement = {};
  std::string schedule = "1f1b";
  std::string model = {};   // ModelKey; empty: not one of our models
  int64_t micro_batch = 0;  // samples; 0: not known
  std::string policy = {};  // that made it
  std::string why = {};     // for people
};

// As JSON:
//
//   {"version": 1, "kind": "paceline plan", "model": "lenet(...) ...",
//    "micro_batch": 16, "schedule": "1f1b", "policy": "optimal", "why": "...",
//    "source": "...",
//    "problem": {"layers": [...], "devices": [...],
//                "links": {"bytes_per_second": [[...]],
//                          "latency_seconds": [[...]]}, ...},
//    "placement": [{"first_layer": 0, "last_layer": 4, "devices": [1],
//                   "shares": [1.0]}],
//    "facts": [...]}
//
// Names and units are those of PlanProblem, PlacedStage and DeviceFacts; a
// bandwidth of null is a free link (JSON has no infinity), last_layer is one
// past the last.

// A problem of 1,000 devices has 25 MB.
inline constexpr int64_t kMaxPlanFileBytes = int64_t{48} << 20;

std::string PlanFileText(PlanFile plan);

// `name` is the file's, for errors.  What is returned has passed CheckProblem,
// and its placement is one of the problem's.
//
// Errors: InvalidArgument  not JSON, not a plan, of a newer version, a field
//         that is missing, of the wrong type or out of its range, a placement
//         that is none of this problem; names the field
absl::StatusOr<PlanFile> ParsePlanFile(const std::string& name,
                                       const std::string& text);

// Errors: InvalidArgument  as above, and a file that cannot be read
absl::StatusOr<PlanFile> ReadPlanFile(const std::string& path);

// The file of `plan --profile FILE`: a published layer graph, the output of
// `profile -o json`, or a plan file; one of graph, plan and profiles.
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
