// How long a round waits for parts, and a gossiping member for its partner.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace paceline {

// Uses the median and the median absolute deviation, which tolerate that one
// arrival in two is far off; means and variances do not.
struct DeadlinePolicy {
  absl::Duration floor = absl::Milliseconds(50);
  // The wait is at least this share of the time from the last step to a round's
  // first part.  A member that computes for ten seconds, or has just evaluated,
  // varies by more than 50 ms.
  double share = 0.25;
  // The wait before anything is known, and the longest one.
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
  // The wait after a first part, which came `first` after the last step.
  absl::Duration Get(absl::Duration first) const;

 private:
  absl::Duration Compute() const;  // without the floor

  const DeadlinePolicy policy_;
  std::deque<absl::Duration> arrivals_;  // oldest first
  // Cached, since a server asks for it with every part.
  mutable std::optional<absl::Duration> computed_;
};

// The wait of a gossiping member for a partner: twice the time that nine
// meetings in ten took, so that one in ten may be far off.  A round's deadline,
// which tolerates one arrival in two that is far off, does not fit: waits
// spread from pair to pair.  A partner that is at once there three times in
// four, and late the fourth time since it had to wait itself, is healthy.
struct PartnerWaitPolicy {
  absl::Duration floor = absl::Milliseconds(200);
  // The wait before anything is known, and the longest one.
  absl::Duration ceiling = absl::Seconds(30);
  double factor = 2;
  double quantile = 0.9;
  int remembered = 64;  // meetings that count
};

// Adapts to the meetings with one partner.  Thread-compatible.
class PartnerWait {
 public:
  explicit PartnerWait(const PartnerWaitPolicy& policy) : policy_(policy) {}

  // A meeting took `wait`, even if this member gave it up before.
  void Add(absl::Duration wait);
  absl::Duration Get() const;

 private:
  const PartnerWaitPolicy policy_;
  std::deque<absl::Duration> waits_;  // oldest first
};

}  // namespace paceline
