// The keys of a job that a bench decides itself.  Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace paceline {

// Whether every KEY=VALUE of `sets` is one that a bench takes over.
// Errors: InvalidArgument  a line for each that it would write over, as
//     --set pipeline.stages=3: the bench decides that itself: use --stages
absl::Status CheckBenchSets(const std::vector<std::string>& sets, bool train);

}  // namespace paceline
