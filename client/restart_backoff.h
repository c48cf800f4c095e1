// When a daemon that died is started again.
#pragma once

#include "absl/time/time.h"

namespace paceline {

// Thread-compatible.
class RestartBackoff {
 public:
  // Half a second, doubled with each death up to 30 s: a daemon that dies at
  // once must not keep the machine busy, one that died of bad luck shall be
  // back before the mesh has given it up.
  static constexpr absl::Duration kFirst = absl::Milliseconds(500);
  static constexpr absl::Duration kLongest = absl::Seconds(30);
  // Who lived that long starts again from the first.
  static constexpr absl::Duration kHealthy = absl::Seconds(60);

  // The pause before the next start.  lived: of the process that died.
  absl::Duration OnDeath(absl::Duration lived);

 private:
  absl::Duration next_ = kFirst;
};

}  // namespace paceline
