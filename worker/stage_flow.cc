// The half of StageRunner that measures what a worker waits for, and what an
// inference job needs besides: its walk over the test set comes in batches of
// one micro-batch, so that Link::AwaitRoom() holds a fast stage back after
// each.
#include <algorithm>
#include <limits>

#include "worker/cpu_time.h"
#include "worker/stage_runner.h"

namespace paceline {
namespace {

// Of so many micro-batches those that are this replica's.
int64_t OwnOf(const Turns& turns, int64_t micro_batches) {
  const int64_t period = std::max<int64_t>(turns.route.period(), 1);
  int64_t of_a_period = 0;
  int64_t of_the_rest = 0;
  for (int64_t turn = 0; turn < period; ++turn) {
    if (!turns.Has(turn)) continue;
    ++of_a_period;
    if (turn < micro_batches % period) ++of_the_rest;
  }
  return micro_batches / period * of_a_period + of_the_rest;
}

}  // namespace

FlowMoment StageRunner::MomentOfFlow() const {
  return {parts_.clock.Now().since_start,
          absl::ToUnixMicros(parts_.clock.Today()), ThreadCpuTime(),
          ProcessCpuTime()};
}

void StageRunner::MeterLoad(const Instruction& instruction,
                            const BatchInfo& batch, Instant began) {
  const FlowMoment now = MomentOfFlow();
  if (options_.inference) {
    admitted_us_[Slot(instruction.stage, instruction.micro_batch)] =
        now.unix_us;
  } else if (batch.phase == BatchPhase::kTrain) {
    entered_[{batch.ordinal, instruction.micro_batch}] = Instant{now.steady};
  }
  flow_.OnInput(now, {began.since_start, now.steady}, /*sent_us=*/0);
}

void StageRunner::MeterBackward(const Instruction& done,
                                const BatchInfo& batch) {
  // The other half is still to come.
  if (done.stage != 0 || done.op == Op::kBackwardInput) return;
  const auto entered = entered_.extract({batch.ordinal, done.micro_batch});
  if (entered.empty()) return;
  flow_.OnResult(parts_.clock.Now() - entered.mapped());
}

void StageRunner::MeterReceive(const Instruction& instruction, bool activation,
                               Instant began, const FrameHeader& header) {
  const int stage = instruction.stage;
  const int from = activation ? stage - 1 : stage + 1;
  if (options_.inference) {
    admitted_us_[Slot(stage, instruction.micro_batch)] = header.admitted_us;
  }
  if (options_.worker_of[from] == options_.worker) return;  // it was here
  const FlowMoment now = MomentOfFlow();
  FlowWait wait = {began.since_start, now.steady};
  // The wait for the frame that a batch begins with was for its header.
  if (activation && stage == own_stages_.front() &&
      instruction.micro_batch == 0) {
    wait = {asked_.since_start, answered_.since_start};
  }
  flow_.OnInput(now, wait, header.sent_us);
}

void StageRunner::MeterSend(const Slot& slot, bool activation,
                            FrameHeader& header) {
  header.sent_us = absl::ToUnixMicros(parts_.clock.Today());
  if (!options_.inference || !activation) return;
  header.admitted_us = admitted_us_[slot];
  admitted_us_.erase(slot);
}

void StageRunner::MeterBatchEnd(const BatchInfo& batch) {
  flow_.OnBatchEnd(MomentOfFlow(), batch.micro_batches, batch.samples);
  parts_.observer.OnFlow(flow_.times(), 0, own_stages_.back() == stages_ - 1);
}

absl::Status StageRunner::TakeResult(const Slot& slot, const BatchInfo& batch,
                                     ForwardResult& result) {
  flow_.OnResult(parts_.clock.Today() -
                 absl::FromUnixMicros(admitted_us_[slot]));
  admitted_us_.erase(slot);
  if (parts_.predictions->samples() == 0) {
    int64_t samples = 0;
    const int64_t own = OwnOf(options_.turns, batch.total_micro_batches);
    if (__builtin_mul_overflow(own, options_.train.batch, &samples)) {
      samples = std::numeric_limits<int64_t>::max();
    }
    parts_.predictions->Expect(samples);
  }
  return parts_.predictions->Add(batch.ordinal * options_.train.batch,
                                 result.output[0], result.output[1]);
}

void StageRunner::FinishFlow() {
  flow_.Finish();
  parts_.observer.OnFlow(flow_.times(), 0, own_stages_.back() == stages_ - 1);
}

}  // namespace paceline
