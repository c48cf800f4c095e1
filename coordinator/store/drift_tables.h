// What a job was predicted to take and takes: columns of jobs, and a table.
#pragma once

#include "absl/status/status.h"
#include "coordinator/records.h"
#include "coordinator/store/sqlite.h"

namespace paceline {

// After the job's row, inside a transaction of the caller's.
absl::Status PutDrift(Database& database, const JobRecord& job);

// After job.stages.
absl::Status LoadDrift(Database& database, JobRecord& job);

}  // namespace paceline
