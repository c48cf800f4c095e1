// Questions about one job's record, and how its facts read in a sentence.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/records.h"
#include "core/base/ids.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"

namespace paceline {

// "stage 1" or "stages 2, 3".
std::string StagesOf(const JobRecord& job, WorkerId worker);

// "at step 40 of 60".
std::string AtStep(const JobRecord& job);

// preparing, training, saving; empty unless the job runs.
std::string PhaseOf(const JobRecord& job);

// Whether what `worker` holds cannot be made again from the order alone.
bool Began(const JobRecord& job, const JobWorker& worker);

// Null when `id` has no part in the job.
JobWorker* FindWorker(JobRecord& job, WorkerId id);

// Whether every worker of the job has come to `phase`.
bool AllAtLeast(const JobRecord& job, RunPhase phase);

absl::Status NoSuchJob(JobId id);

// Errors: InvalidArgument  all that CheckJobSpec() found.
absl::Status CheckSpec(const JobSpec& spec);

// The model that `spec` trains.  Errors: as DescribeModel().
absl::StatusOr<ModelDescription> Describe(const JobSpec& spec);

}  // namespace paceline
