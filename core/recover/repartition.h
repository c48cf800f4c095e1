// Repartition decides whether a job that runs moves to a better plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "core/base/clock.h"

namespace paceline {

struct RepartitionPolicy {
  // The better plan must be better for so long without a break.
  absl::Duration settled_for = absl::Seconds(30);
  // By at least this part of a step's time: less is within what is measured.
  double least_gain = 0.1;
  absl::Duration between_moves = absl::Minutes(10);
};
// A job without state loses a few seconds by a move that was wrong, and may
// move back.
inline constexpr RepartitionPolicy kStatelessPolicy = {
    .settled_for = absl::Seconds(5), .between_moves = absl::Seconds(30)};

// Present and better plan, both at the speeds measured now.
struct MoveEstimate {
  double step_seconds = 0;         // measured
  double better_step_seconds = 0;  // predicted of the better plan
  int64_t steps_left = 0;
  int64_t steps_again = 0;  // that a move makes again: they are not stored yet
  int64_t bytes =
      0;  // of pieces that change their machine, on the busiest link
  double bytes_per_second = 0;
  double restart_seconds = 0;  // measured: from the stop to the first step
};

struct MoveVerdict {
  bool move = false;
  std::string why;  // for people
};

// Thread-compatible.
class Repartition {
 public:
  explicit Repartition(const RepartitionPolicy& policy) : policy_(policy) {}

  // A new measurement; at least every few seconds.
  MoveVerdict Decide(const MoveEstimate& estimate, Instant now);
  // The job moved to the better plan.
  void OnMoved(Instant now);
  // It began on another plan for another reason.
  void OnReplaced() { better_since_.reset(); }

 private:
  RepartitionPolicy policy_;
  std::optional<Instant> moved_at_;
  std::optional<Instant> better_since_;
};

}  // namespace paceline
