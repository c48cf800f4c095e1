#include "core/recover/repartition.h"

#include "absl/strings/str_format.h"

namespace paceline {

MoveVerdict Repartition::Decide(const MoveEstimate& estimate, Instant now) {
  const double gain = estimate.step_seconds - estimate.better_step_seconds;
  if (gain < policy_.least_gain * estimate.step_seconds || gain <= 0) {
    better_since_.reset();
    return {false, absl::StrFormat(
                       "a step takes %.3f s, and %.3f s on the best plan",
                       estimate.step_seconds, estimate.better_step_seconds)};
  }
  if (!better_since_.has_value()) better_since_ = now;
  const double gained = gain * static_cast<double>(estimate.steps_left);
  const double moving =
      estimate.bytes == 0
          ? 0
          : static_cast<double>(estimate.bytes) / estimate.bytes_per_second;
  const double cost =
      moving + estimate.restart_seconds +
      estimate.better_step_seconds * static_cast<double>(estimate.steps_again);
  const std::string sums =
      absl::StrFormat("a move saves %.1f s over %d steps and costs %.1f s",
                      gained, estimate.steps_left, cost);
  if (gained <= cost) return {false, sums};
  const absl::Duration better_for = now - *better_since_;
  if (better_for < policy_.settled_for) {
    return {false, absl::StrFormat("%s, but only for %.0f s now", sums,
                                   absl::ToDoubleSeconds(better_for))};
  }
  if (moved_at_.has_value() && now - *moved_at_ < policy_.between_moves) {
    return {false, absl::StrFormat("%s, but the last move was %.0f s ago", sums,
                                   absl::ToDoubleSeconds(now - *moved_at_))};
  }
  return {true, sums};
}

void Repartition::OnMoved(Instant now) {
  moved_at_ = now;
  better_since_.reset();
}

}  // namespace paceline
