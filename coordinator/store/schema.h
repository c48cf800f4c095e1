// The tables of the coordinator's data base, and how older ones become these.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/store/sqlite.h"

namespace paceline {

// Migration i makes version i+1 (PRAGMA user_version) out of version i.  Only
// ever appended to: what was released is never edited.
const std::vector<std::string>& Migrations();

// Brings `database` to the newest of `migrations`, each migration in one
// transaction.
//
// Errors: FailedPrecondition  a newer program has written it
//         DataLoss            its version is a number that none writes
//         those of JobStore
absl::Status Migrate(Database& database,
                     const std::vector<std::string>& migrations);

}  // namespace paceline
