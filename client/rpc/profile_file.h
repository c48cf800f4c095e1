// Reads what `plan --profile FILE` names.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/planning/profile_source.h"

namespace paceline {

// Text that begins with '{' is JSON: a plan file when it has `problem`, else
// what `profile -o json` prints (`profiles`, and `links` where there are any).
// Anything else is the published graph format
// (core/plan/pipedream/graph_profile.h).
//
// Errors: InvalidArgument  names the file and the field or line: not the
//         format, a number that is missing, negative or not finite, two
//         profiles of one device, profiles of different models or micro-batches
absl::StatusOr<ProfileSource> ParseProfileFile(const std::string& name,
                                               const std::string& text);

// Errors: InvalidArgument  as above, and a file that cannot be read
absl::StatusOr<ProfileSource> ReadProfileFile(const std::string& path);

}  // namespace paceline
