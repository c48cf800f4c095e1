// Repartition decides whether a running job moves to a better plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "core/base/clock.h"

namespace paceline {

struct RepartitionPolicy {
  // How long the other plan must stay better, without a break.
  absl::Duration settled_for = absl::Seconds(30);
  // The least gain as a share of a step's time; less is measurement error.
  double least_gain = 0.1;
  absl::Duration between_moves = absl::Minutes(10);
};
// A wrong move costs a job without state a few seconds, and it may move back.
inline constexpr RepartitionPolicy kStatelessPolicy = {
    .settled_for = absl::Seconds(5), .between_moves = absl::Seconds(30)};

// The present plan and a better one, both at the speeds measured now.
struct MoveEstimate {
  double step_seconds = 0;         // measured
  double better_step_seconds = 0;  // predicted of the better plan
  int64_t steps_left = 0;
  int64_t steps_again = 0;  // that a move repeats: they are not stored yet
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

  // Call it with a new measurement, at least every few seconds.
  MoveVerdict Decide(const MoveEstimate& estimate, Instant now);
  // The job moved to the better plan.
  void OnMoved(Instant now);
  // The job began on another plan for another reason.
  void OnReplaced() { better_since_.reset(); }

 private:
  RepartitionPolicy policy_;
  std::optional<Instant> moved_at_;
  std::optional<Instant> better_since_;
};

}  // namespace paceline
