// The tables of what was measured.
#pragma once

#include "absl/status/status.h"
#include "coordinator/job_store.h"
#include "coordinator/store/sqlite.h"

namespace paceline {

// Inside a transaction of the caller's.
absl::Status PutMeasurements(Database& database,
                             const StoredMeasurements& measurements);

absl::Status LoadMeasurements(Database& database,
                              StoredMeasurements& measurements);

}  // namespace paceline
