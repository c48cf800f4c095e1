// Uses a plan file: a job follows it, or it is simulated. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/simulate.h"
#include "client/files/plan_file.h"
#include "core/model/job_spec.h"

namespace paceline {

// Makes spec.pipeline cut as `plan` does, on the same workers when it was made
// for a mesh; `name` is the file's, for errors.  The schedule stays the job's.
// Returns what a person should know of that, or nothing: that only its cuts are
// followed, that it does not count what layers share.
//
// Errors: InvalidArgument  the plan is of another model than the job (names
//         both) or of another number of layers, has stages of several workers
//         where the job trains or they are no mesh's, the job has cuts of its
//         own, or its spec does not allow these cuts (CheckJobSpec: under
//         pipedream layers that share parameters must be on one stage)
absl::StatusOr<std::string> FollowPlan(const std::string& name,
                                       const PlanFile& plan, JobSpec& spec);

// The keys among these settings (KEY=VALUE) that a plan decides.
std::vector<std::string> KeysOfAPlan(const std::vector<std::string>& sets);

// As the real run would be simulated, where the plan knows its devices.
SimulatedPlan SimulationOf(const PlanFile& plan);

}  // namespace paceline
