#include "worker/cpu_time.h"

#include <time.h>

namespace paceline {
namespace {

absl::Duration CpuTimeOf(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

absl::Duration ThreadCpuTime() { return CpuTimeOf(CLOCK_THREAD_CPUTIME_ID); }

absl::Duration ProcessCpuTime() { return CpuTimeOf(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace paceline
