// CPU seconds that were used so far, as the system counts them.
#pragma once

#include "absl/time/time.h"

namespace paceline {

// Of the calling thread.
absl::Duration ThreadCpuTime();
// Of all threads of this process.
absl::Duration ProcessCpuTime();

}  // namespace paceline
