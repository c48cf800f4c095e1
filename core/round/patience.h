// How long a member that gossips waits for a partner.
#pragma once

#include <deque>

#include "absl/time/time.h"

namespace paceline {

// Not a round's deadline (deadline.h), for which one part in two may be far
// off: in gossip waits go from pair to pair, so that a partner that comes at
// once three times of four and late the fourth, since it had to wait itself, is
// as it should be.  Twice what nine meetings in ten took; one in ten may be far
// off.
struct PatiencePolicy {
  absl::Duration floor = absl::Milliseconds(200);
  // Before anything is known, and never longer.
  absl::Duration ceiling = absl::Seconds(30);
  double factor = 2;
  double quantile = 0.9;
  int remembered = 64;  // meetings that count
};

// With one partner.  Thread-compatible.
class Patience {
 public:
  explicit Patience(const PatiencePolicy& policy) : policy_(policy) {}

  // It took so long, whether it was waited for or not.
  void Add(absl::Duration wait);
  absl::Duration Get() const;

 private:
  const PatiencePolicy policy_;
  std::deque<absl::Duration> waits_;  // oldest first
};

}  // namespace paceline
