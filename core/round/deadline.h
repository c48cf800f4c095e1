// How long a round waits for parts.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace paceline {

// The median and the median absolute deviation stand one arrival in two that
// is far off; means and variances do not.
struct DeadlinePolicy {
  absl::Duration floor = absl::Milliseconds(50);
  // The wait is at least this share of the time from the last step to a round's
  // first part.  A member that computes for ten seconds, or has just evaluated,
  // varies by more than 50 ms.
  double share = 0.25;
  // Before anything is known, and never longer.
  absl::Duration ceiling = absl::Seconds(30);
  double deviations = 6;  // k of median + k * MAD
  int remembered = 64;    // arrivals that count
};

// Adapts to the arrivals of earlier rounds, counted from a round's first part.
// Thread-compatible.
class Deadline {
 public:
  explicit Deadline(const DeadlinePolicy& policy) : policy_(policy) {}

  void Add(const std::vector<absl::Duration>& arrivals);
  // After a round's first part, which came `first` after the last step.
  absl::Duration Get(absl::Duration first) const;

 private:
  absl::Duration Compute() const;  // without the floor

  const DeadlinePolicy policy_;
  std::deque<absl::Duration> arrivals_;  // oldest first
  // Kept, since a server asks with every part.
  mutable std::optional<absl::Duration> computed_;
};

// A member that gossips waits so long for a partner: twice what nine meetings
// in ten took; one in ten may be far off.  A round's deadline would not do, for
// which one part in two may be far off: in gossip waits go from pair to pair,
// so that a partner that comes at once three times of four and late the fourth,
// since it had to wait itself, is as it should be.
struct PartnerWaitPolicy {
  absl::Duration floor = absl::Milliseconds(200);
  // Before anything is known, and never longer.
  absl::Duration ceiling = absl::Seconds(30);
  double factor = 2;
  double quantile = 0.9;
  int remembered = 64;  // meetings that count
};

// With one partner.  Thread-compatible.
class PartnerWait {
 public:
  explicit PartnerWait(const PartnerWaitPolicy& policy) : policy_(policy) {}

  // It took so long, whether it was waited for or not.
  void Add(absl::Duration wait);
  absl::Duration Get() const;

 private:
  const PartnerWaitPolicy policy_;
  std::deque<absl::Duration> waits_;  // oldest first
};

}  // namespace paceline
