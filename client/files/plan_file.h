// A plan with all that it was made from: what `plan --save` writes, `simulate
// --plan` runs and `job submit --plan` follows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/cost.h"
#include "core/plan/inputs.h"
#include "core/plan/problem.h"

namespace paceline {

struct PlanFile {
  PlanProblem problem = {};
  Placement placement = {};
  std::string schedule = "1f1b";
  std::string model = {};   // ModelKey; empty: not one of our models
  int64_t micro_batch = 0;  // samples; 0: not known
  // [devices], or empty: what only a simulator asks of a device.
  std::vector<DeviceFacts> facts = {};
  std::string policy = {};  // that made it
  std::string why = {};     // for people
  std::string source = {};  // of the times, for people
  // Where some of these times were not measured.
  std::optional<PredictedTimes> predicted = std::nullopt;

  friend bool operator==(const PlanFile&, const PlanFile&) = default;
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

// Errors: those of WriteWholeFile (client/files/whole_file.h)
absl::Status SavePlanFile(const std::string& path, PlanFile plan);

}  // namespace paceline
