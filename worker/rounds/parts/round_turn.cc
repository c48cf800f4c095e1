#include "worker/rounds/parts/round_turn.h"

#include <utility>

#include "core/base/errors.h"

namespace paceline {

void WriteResult(const RoundTurn& turn, const RoundShape& shape,
                 absl::Span<float> gradient) {
  for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
    const int shard = shape.shard_of(chunk);
    const absl::Span<const uint8_t> bytes =
        turn.sums[shard]->chunk(shape.index_of(chunk));
    const absl::Span<float> values = gradient.subspan(
        shape.begin(chunk), bytes.size() / shape.value_bytes());
    DecodeValues(shape.codec(), bytes, values);
    const int64_t divisor = turn.result.shards[shard].divisor;
    if (divisor == turn.divisor) continue;
    const auto scale = static_cast<float>(static_cast<double>(turn.divisor) /
                                          static_cast<double>(divisor));
    for (float& value : values) value *= scale;
  }
}

std::optional<std::vector<absl::Span<const float>>> ResultInPlace(
    const RoundTurn& turn, const RoundShape& shape) {
  if (shape.codec() != Codec::kRaw) return {};
  std::vector<absl::Span<const float>> chunks;
  for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
    const int shard = shape.shard_of(chunk);
    if (turn.result.shards[shard].divisor != turn.divisor) return {};
    const absl::Span<const uint8_t> bytes =
        turn.sums[shard]->chunk(shape.index_of(chunk));
    chunks.emplace_back(reinterpret_cast<const float*>(bytes.data()),
                        bytes.size() / sizeof(float));
  }
  return chunks;
}

void RoundTurns::Publish(State state) {
  const SteadyLock lock(&mutex_);
  // A member that becomes the uploader again may have to upload again.
  if (!state.uploads) told_upload_ = false;
  state_ = std::move(state);
}

void RoundTurns::End(absl::Status why) {
  const SteadyLock lock(&mutex_);
  if (end_.ok()) end_ = std::move(why);
}

bool RoundTurns::PartIsDue() const {
  return state_.needs_part && state_.next < total_steps_ &&
         part_step_ < state_.next;
}

bool RoundTurns::HasTurn() const {
  return !end_.ok() || !turns_.empty() || PartIsDue() || DoneIsDue() ||
         UploadIsDue();
}

absl::StatusOr<RoundTurn> RoundTurns::Await(absl::Duration longest) {
  const SteadyLock lock(&mutex_);
  at_turn_ = false;
  const bool has_turn =
      mutex_.AwaitFor(absl::Condition(this, &RoundTurns::HasTurn), longest);
  if (!end_.ok()) return end_;
  RoundTurn turn;
  turn.step = state_.next;
  if (!has_turn) {
    turn.kind = RoundTurn::Kind::kWait;
  } else if (!turns_.empty()) {
    turn = std::move(turns_.front());
    turns_.pop_front();
  } else if (PartIsDue()) {
    turn.kind = RoundTurn::Kind::kPart;
    turn.view = *state_.view;
  } else if (DoneIsDue()) {
    turn.kind = RoundTurn::Kind::kDone;
    told_done_ = true;
  } else {
    turn.kind = RoundTurn::Kind::kUpload;
    told_upload_ = true;
  }
  ++given_;
  at_turn_ = has_turn && turn.kind != RoundTurn::Kind::kFetch &&
             turn.kind != RoundTurn::Kind::kDone &&
             turn.kind != RoundTurn::Kind::kUpload;
  return turn;
}

std::optional<RoundTurn> RoundTurns::TryTakeOffer() {
  const SteadyLock lock(&mutex_);
  const auto found =
      std::ranges::find(turns_, RoundTurn::Kind::kOffer, &RoundTurn::kind);
  if (found == turns_.end()) return {};
  RoundTurn turn = std::move(*found);
  turns_.erase(found);
  return turn;
}

bool RoundTurns::IsOver(int64_t step) const {
  const SteadyLock lock(&mutex_);
  return !end_.ok() || state_.next > step ||
         std::ranges::any_of(turns_, [step](const RoundTurn& turn) {
           return turn.kind == RoundTurn::Kind::kRestore ||
                  (turn.kind == RoundTurn::Kind::kApply && turn.step >= step);
         });
}

int64_t RoundTurns::results() const {
  const SteadyLock lock(&mutex_);
  return std::ranges::count(turns_, RoundTurn::Kind::kApply, &RoundTurn::kind);
}

absl::StatusOr<double> LossRequests::After(absl::Span<const float> direction,
                                           double step) {
  const absl::Status over =
      Cancelled("the round for which the loss was asked is over");
  RoundTurn turn;
  turn.kind = RoundTurn::Kind::kLoss;
  turn.direction = direction;
  turn.loss_step = step;
  {
    const absl::MutexLock lock(&mutex_);
    if (shut_ > 0) return over;
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

}  // namespace paceline
