// How micro-batches of jobs passed through their workers: a table.
#pragma once

#include "absl/status/status.h"
#include "coordinator/records.h"
#include "coordinator/store/sqlite.h"

namespace paceline {

// Inside a transaction of the caller's.
absl::Status PutFlows(Database& database, const JobRecord& job);

// After job.workers.
absl::Status LoadFlows(Database& database, JobRecord& job);

}  // namespace paceline
