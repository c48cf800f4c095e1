// Checks of what a worker says of itself when it attaches.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// Whether a worker of ours could have sent this.
//
// Errors: InvalidArgument  names the field and what would be right.
absl::Status CheckRegistration(const v1::Registration& registration);

// default 0, avx2 1, avx512 2, avx512_bf16 3; -1 for a word that is none of
// them.  What runs on one runs on every greater one.
int CapabilityRank(absl::string_view capability);

// The highest capability that a job of this precision (core/model/precision.h)
// gains from; above it workers would only start anew for nothing.
std::string HighestUseful(absl::string_view precision);

}  // namespace paceline
