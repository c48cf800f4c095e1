// From what `paceline plan` was given to what the policies are asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/measure_client.h"
#include "client/planning/plan_options.h"
#include "client/planning/profile_source.h"
#include "core/model/job_spec.h"
#include "core/plan/inputs.h"

namespace paceline {

struct PlanQuestion {
  PlanInputs inputs;  // facts are empty where devices are made up
  std::string policy = "dp";
  std::string schedule = "1f1b";
  std::string model;        // ModelKey; empty: not one of our models
  int64_t micro_batch = 0;  // samples; 0: not known
  // With fewer workers than stages: of all stages, which the workers share; 0:
  // a stage has workers of its own.
  int shared_stages = 0;
  // First layers of stages 1, 2, ... as the job has them; empty: a policy cuts.
  std::vector<int> cuts;
};

// For the coordinator's live workers, with all that it ever measured.  `spec`
// has passed CheckJobSpec.
//
// Errors: InvalidArgument     sizes that do not fit; an option that is wrong
//         FailedPrecondition  no worker is attached
//         and those of MeasureClient
absl::StatusOr<PlanQuestion> AskForMesh(MeasureClient& measure,
                                        const JobSpec& spec,
                                        const PlanOptions& options);

// For the machines that the options describe, else for those of the source.
//
// Errors: InvalidArgument  machines, bandwidths, speeds or memory that are
//         wrong, missing or too few; too many states; an option that is wrong
absl::StatusOr<PlanQuestion> AskForProfile(const ProfileSource& source,
                                           const PlanOptions& options);

}  // namespace paceline
