#include "core/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace paceline {

Instant SystemClock::Now() const {
  return {
      absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch())};
}

absl::Time SystemClock::Today() const { return absl::Now(); }

}  // namespace paceline
