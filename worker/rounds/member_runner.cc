#include "worker/rounds/member_runner.h"

#include <set>
#include <string>
#include <utility>

#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/obs/log.h"
#include "core/schedule/schedule.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {

MemberRunner::MemberRunner(MemberOptions options, const MemberParts& parts,
                           GroupExchange& exchange)
    : options_(std::move(options)),
      parts_(parts),
      total_steps_(parts.source.total_steps()),
      applied_(options_.base),
      exchange_(exchange),
      skips_(options_.skipped_in_row),
      evaluates_base_(options_.evaluates_base) {}

absl::Status MemberRunner::Run() {
  PACELINE_RETURN_IF_ERROR(Begin());
  const auto await = [this](absl::Duration longest) {
    const ScopedPart part(parts_.time, TimePart::kAggregate);
    return exchange_.AwaitTurn(longest);
  };
  for (;;) {
    absl::StatusOr<RoundTurn> turn = await(absl::ZeroDuration());
    if (turn.ok() && turn->kind == RoundTurn::Kind::kWait) {
      OnIdle();
      turn = await(longest_wait());
    }
    PACELINE_RETURN_IF_ERROR(turn.status());
    PACELINE_RETURN_IF_ERROR(TakeAny(*turn));
  }
}

absl::Status MemberRunner::TakeAny(RoundTurn& turn) {
  // The first turn comes with a view.
  if (turn.kind != RoundTurn::Kind::kWait &&
      std::exchange(evaluates_base_, false)) {
    PACELINE_RETURN_IF_ERROR(Evaluate(applied_));
  }
  switch (turn.kind) {
    case RoundTurn::Kind::kRestore:
      return Restore(turn);
    case RoundTurn::Kind::kOffer:
      OfferState(std::move(turn));
      return absl::OkStatus();
    case RoundTurn::Kind::kFetch:
      return Fetch(std::move(turn));
    case RoundTurn::Kind::kDone:
      parts_.on_done(exchange_.uploads());
      return absl::OkStatus();
    case RoundTurn::Kind::kUpload: {
      const ScopedPart part(parts_.time, TimePart::kSnapshot);
      return parts_.upload();
    }
    default:
      return Take(turn);
  }
}

// --- A step -----------------------------------------------------------------

absl::Status MemberRunner::BeginStep(const StepFaults& faults, int64_t step) {
  losses_ = {};
  stage_time_ = {};
  if (faults.kill) {
    Log(LogLevel::kWarn, "dies on purpose",
        {{"step", step}, {"phase", "computing"}});
    parts_.fault_actions.Kill();
  }
  if (faults.hang > absl::ZeroDuration()) {
    parts_.fault_actions.Hang(faults.hang);
  }
  if (faults.delay > absl::ZeroDuration()) {
    return parts_.cancel.Pause(faults.delay);
  }
  return absl::OkStatus();
}

absl::Status MemberRunner::ComputeMicroBatch(
    const BatchInfo& batch, int micro_batch, const StepFaults& faults,
    const std::function<void()>& before_backward) {
  TensorList input;
  {
    const ScopedPart part(parts_.time, TimePart::kData);
    PACELINE_ASSIGN_OR_RETURN(input, parts_.source.NextMicroBatch());
  }
  if (faults.label_flip) {
    input.back() = FlipLabels(input.back(), options_.spec.data.classes);
  }
  const Instant began = parts_.clock.Now();
  {
    const ScopedPart part(parts_.time, TimePart::kForward);
    PACELINE_ASSIGN_OR_RETURN(
        const ForwardResult result,
        parts_.engine.Forward(batch, micro_batch, std::move(input)));
    if (result.loss.has_value()) losses_.Add(*result.loss);
  }
  parts_.observer.OnProgress({0, Op::kForward, micro_batch}, batch);
  {
    const ScopedPart part(parts_.time, TimePart::kBackward);
    if (before_backward) before_backward();
    PACELINE_RETURN_IF_ERROR(
        parts_.engine.Backward(batch, micro_batch, {}).status());
  }
  parts_.observer.OnProgress({0, Op::kBackward, micro_batch}, batch);
  stage_time_.set_seconds(stage_time_.seconds() +
                          absl::ToDoubleSeconds(parts_.clock.Now() - began));
  stage_time_.set_micro_batches(stage_time_.micro_batches() + 1);
  return absl::OkStatus();
}

absl::Status MemberRunner::Tell(const StepVerdict& verdict,
                                const BatchInfo& batch, int64_t own,
                                int64_t all) {
  // A member that computed no samples of the batch has no loss to report.
  std::optional<v1::StepRecord> record;
  if (losses_.samples > 0) {
    record = RecordOf(verdict, losses_, all, parts_.clock.Today());
  }
  parts_.observer.OnStep(verdict, own, record);
  parts_.observer.OnProgress({0, Op::kStep, 0}, batch);
  const Instant now = parts_.clock.Now();
  std::optional<absl::Duration> wall;
  if (told_at_.has_value()) wall = now - *told_at_;
  told_at_ = now;
  parts_.observer.OnBatch(wall, {stage_time_});
  SayUnreadable(parts_.source, parts_.observer);
  losses_ = {};
  stage_time_ = {};
  return skips_.OnStep(verdict.skip, verdict.why);
}

std::vector<int> MemberRunner::OwnMicroBatches(const RoundTurn& turn,
                                               const BatchInfo& batch) const {
  return MicroBatchesOf(turn.view, turn.step, options_.self,
                        batch.micro_batches);
}

// Each member computes its share of the next step's division; the coordinator
// adds the sums up.
absl::Status MemberRunner::Evaluate(int64_t steps) {
  const BatchInfo batch = parts_.source.Evaluation(steps);
  const std::optional<View> view = exchange_.view();
  if (batch.micro_batches == 0 || !view.has_value()) return absl::OkStatus();
  const std::vector<int> own =
      MicroBatchesOf(*view, steps, options_.self, batch.micro_batches);
  LossSums sums;
  if (!own.empty()) {
    PACELINE_RETURN_IF_ERROR(EvaluateShare(batch, own, sums));
  }
  told_at_.reset();
  SayUnreadable(parts_.source, parts_.observer);
  // Sent without samples too: the coordinator waits for every member.
  parts_.observer.OnEvaluation(RecordOf(steps, sums));
  return absl::OkStatus();
}

absl::Status MemberRunner::EvaluateShare(const BatchInfo& batch,
                                         const std::vector<int>& own,
                                         LossSums& sums) {
  parts_.source.Prepare(batch, own);
  for (const int micro_batch : own) {
    PACELINE_RETURN_IF_ERROR(parts_.cancel.status());
    OfferIfAsked();
    TensorList input;
    {
      const ScopedPart part(parts_.time, TimePart::kData);
      PACELINE_ASSIGN_OR_RETURN(input, parts_.source.NextMicroBatch());
    }
    const ScopedPart part(parts_.time, TimePart::kEvaluation);
    PACELINE_ASSIGN_OR_RETURN(
        const ForwardResult result,
        parts_.engine.Forward(batch, micro_batch, std::move(input)));
    if (!result.loss.has_value()) continue;
    sums.Add(*result.loss);
    parts_.observer.OnProgress({0, Op::kForward, micro_batch}, batch);
  }
  return absl::OkStatus();
}

// --- The state --------------------------------------------------------------

absl::Status MemberRunner::Restore(const RoundTurn& turn) {
  const ScopedPart part(parts_.time, TimePart::kSnapshot);
  Abandon();
  std::vector<absl::Span<const uint8_t>> layers;
  for (const PiecePtr& piece : turn.state) layers.push_back(piece->bytes());
  PACELINE_RETURN_IF_ERROR(parts_.engine.RestoreState(layers));
  const uint64_t hash = parts_.engine.StateHash();
  if (hash != turn.state_hash) {
    return Internal("the state after ", Counted(turn.step, "step"),
                    " has the hash ", absl::Hex(hash), " here, and ",
                    absl::Hex(turn.state_hash), " at the member that sent it");
  }
  applied_ = turn.step;
  parts_.on_state(applied_, std::nullopt);
  told_at_.reset();
  Log(LogLevel::kInfo, "took the group's state over",
      {{"step", applied_}, {"state", absl::Hex(hash, absl::kZeroPad16)}});
  OnRestored(hash);
  return absl::OkStatus();
}

void MemberRunner::OfferState(RoundTurn turn) {
  const ScopedPart part(parts_.time, TimePart::kSnapshot);
  turn.step = applied_;
  turn.state = parts_.offer(applied_);
  turn.state_hash = state_hash_ != 0 ? state_hash_ : parts_.engine.StateHash();
  exchange_.AnswerState(std::move(turn));
}

absl::Status MemberRunner::Fetch(RoundTurn turn) {
  const ScopedPart part(parts_.time, TimePart::kSnapshot);
  auto state = parts_.fetch(turn.step, turn.source);
  PACELINE_RETURN_IF_ERROR(parts_.cancel.status());
  if (state.ok()) {
    turn.state = *std::move(state);
  } else {
    Log(LogLevel::kWarn, "could not fetch the group's state",
        {{"step", turn.step}, {"why", state.status().ToString()}});
  }
  exchange_.AnswerState(std::move(turn));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedTensor>> MemberRunner::Trainable() {
  PACELINE_ASSIGN_OR_RETURN(std::vector<NamedTensor> weights,
                            parts_.engine.Weights());
  std::set<std::string> trainable;
  for (const Layer& layer : options_.model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.trainable) trainable.insert(parameter.name);
    }
  }
  std::erase_if(weights, [&trainable](const NamedTensor& weight) {
    return trainable.count(weight.name) == 0;
  });
  return weights;
}

}  // namespace paceline
