// How many versions of its weights each stage has at a time.  Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/schedule/schedule.h"

namespace paceline {

// A version is there from the UPDATE that makes it until no micro-batch that
// went forward at it waits for its backward and no forward to come will use
// it.  An update in whose version nobody is interested any more writes over it.
// Without UPDATEs there is one version.
//
// Returns [stages].
// Errors: InvalidArgument  with vertical sync, a forward at a version that its
//                          stage has not made yet
absl::StatusOr<std::vector<int>> KeptVersions(const Schedule& schedule);

}  // namespace paceline
