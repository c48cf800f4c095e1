#include "worker/rounds/loss_requests.h"

#include <utility>

#include "absl/status/status.h"

namespace paceline {

bool LossRequests::IsSettled() const {
  return answer_.has_value() || (!taken_ && (ended_ || shut_));
}

absl::StatusOr<double> LossRequests::Ask(absl::Span<const float> direction,
                                         double step) {
  const absl::Status over =
      absl::CancelledError("the round for which the loss was asked is over");
  RoundTurn turn;
  turn.kind = RoundTurn::Kind::kLoss;
  turn.direction = direction;
  turn.loss_step = step;
  {
    const absl::MutexLock lock(&mutex_);
    if (ended_ || shut_) return over;
    turn.question = open_ = ++last_;
    taken_ = false;
    answer_.reset();
  }
  turns_.Push(std::move(turn));
  const absl::MutexLock lock(&mutex_,
                             absl::Condition(this, &LossRequests::IsSettled));
  open_ = 0;
  if (!answer_.has_value()) return over;
  return *std::exchange(answer_, {});
}

bool LossRequests::Take(const RoundTurn& turn) {
  const absl::MutexLock lock(&mutex_);
  if (turn.question != open_) return false;
  taken_ = true;
  return true;
}

void LossRequests::Answer(absl::StatusOr<double> loss) {
  const absl::MutexLock lock(&mutex_);
  answer_ = std::move(loss);
}

void LossRequests::SetShut(bool shut) {
  const absl::MutexLock lock(&mutex_);
  shut_ = shut;
}

void LossRequests::End() {
  const absl::MutexLock lock(&mutex_);
  ended_ = true;
}

}  // namespace paceline
