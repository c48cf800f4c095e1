// Checks the registration that a worker sends when it attaches, and names.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// Says why `name` is no name of a worker, or of another `thing`; empty: it is
// one.  The text repeats at most 64 bytes of a bad name, and no byte that a
// terminal would obey.
std::string WhyNoWorkerName(absl::string_view name,
                            absl::string_view thing = "worker");

// Checks that one of our workers could have sent this.
//
// Errors: InvalidArgument  names the field and what would be right.
absl::Status CheckRegistration(const v1::Registration& registration);

// Lists `folders`, which are for people only, as far as CheckRegistration()
// lets it.
void SetDataDirs(const std::vector<std::string>& folders,
                 v1::Registration& registration);

// Workers of one host share its cores: `paceline up` gives each worker a
// machine id of its own.
std::string HostOf(const v1::Registration& registration);

// default 0, avx2 1, avx512 2, avx512_bf16 3; -1 for any other word.  Code for
// one level runs on every higher one.
int CapabilityRank(absl::string_view capability);

// Returns the highest level that a job of this precision
// (core/job/spec/job_spec.h) gains from.  At a higher level workers would
// start anew for nothing.
std::string HighestUseful(absl::string_view precision);

}  // namespace paceline
