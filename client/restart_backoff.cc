#include "client/restart_backoff.h"

#include <algorithm>

namespace paceline {

absl::Duration RestartBackoff::OnDeath(absl::Duration lived) {
  if (lived >= kHealthy) next_ = kFirst;
  const absl::Duration pause = next_;
  next_ = std::min(2 * next_, kLongest);
  return pause;
}

}  // namespace paceline
