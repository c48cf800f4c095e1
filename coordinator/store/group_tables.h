// Views of round groups and who was taken out of them, their term, and drained
// workers.
#pragma once

#include "absl/status/status.h"
#include "coordinator/job_store.h"
#include "coordinator/store/sqlite.h"

namespace paceline {

// Inside a transaction of the caller's.
absl::Status PutGroups(Database& database, const StoreBatch& batch);

absl::Status LoadGroups(Database& database, StoredState& state);

}  // namespace paceline
