#include "core/recover/run_state.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"

namespace paceline {

WorkStep WorkState::OnOrder(OrderNumber number,
                            const std::optional<Fence>& run) {
  number_ = number;
  ordered_ = run;
  if (leaving_) return WorkStep::kNothing;
  if (!run_.has_value() || run == run_) return CarryOut();
  leaving_ = true;
  return WorkStep::kLeave;
}

WorkStep WorkState::OnLeft() {
  if (!leaving_) return WorkStep::kNothing;
  leaving_ = false;
  left_.Add(*run_);
  run_.reset();
  return CarryOut();
}

// Begins the run of the newest order, unless it runs already.
WorkStep WorkState::CarryOut() {
  carried_out_ = number_;
  if (run_ == ordered_) return WorkStep::kNothing;
  run_ = ordered_;
  return WorkStep::kBegin;
}

absl::Status WorkState::CheckNew() const {
  if (!run_.has_value() || !HasLeft(*run_)) return absl::OkStatus();
  return Aborted(ToText(*run_), " was left here before");
}

bool SnapshotClock::ShouldMark(int64_t step, int64_t floor) {
  if (policy_.every <= 0 || floor < last_mark_) return false;
  if (!std::exchange(complete_, true)) {
    lag_ = std::max(step - last_mark_, lag_ - 1);
  }
  // One step of margin, for a snapshot that takes longer than the last one.
  const int64_t interval =
      std::max((policy_.every + 1) / 2, policy_.every - lag_ - 1);
  return step - last_mark_ >= interval;
}

void SnapshotClock::OnMarked(int64_t step) {
  last_mark_ = step;
  complete_ = false;
}

bool SnapshotClock::MustWait(int64_t step, int64_t floor, Instant acknowledged,
                             Instant now) const {
  return policy_.every > 0 && last_mark_ > floor &&
         step - floor >= policy_.every && now - acknowledged < policy_.patience;
}

}  // namespace paceline
