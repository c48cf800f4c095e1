// Plan files: PlanFile as JSON.
//
//   {"version": 1, "kind": "paceline plan", "model": "lenet(...) ...",
//    "micro_batch": 16, "schedule": "1f1b", "policy": "dp", "why": "...",
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
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/plan_file.h"
#include "client/planning/plan_commands.h"

namespace paceline {

// A problem of 1,000 devices has 25 MB.
inline constexpr int64_t kMaxPlanFileBytes = int64_t{48} << 20;

std::string PlanFileText(const PlanFile& plan);

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

// Writes plan files to `path`.  Thread-compatible.
class PlanFileSink final : public PlanSink {
 public:
  explicit PlanFileSink(std::string path) : path_(std::move(path)) {}
  // Errors: those of WriteWholeFile (client/files.h)
  absl::Status Save(const PlanFile& plan) override;

 private:
  const std::string path_;
};

}  // namespace paceline
