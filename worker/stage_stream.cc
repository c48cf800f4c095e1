// The half of StageRunner that runs asynchronous schedules: micro-batches
// stream through without a flush and without a step gate (DESIGN 5,
// "Asynchronous"). There is no list of instructions, which would be as long as
// the job: what comes next is decided one compute at a time, and whether
// another batch comes is in the header of the one before.
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/schedule/asynchronous.h"
#include "worker/stage_runner.h"

namespace paceline {

absl::StatusOr<BatchInfo> StageRunner::RunStream(const BatchInfo& first) {
  // MakeSchedule gives no worker two stages of such a schedule.
  PACELINE_CHECK(own_stages_.size() == 1, "a stream of several stages");
  AsynchronousOrder order(own_stages_.front(), stages_);
  const int64_t base = updates_;
  StageEngine& engine = *parts_.engines.at(own_stages_.front());
  std::deque<InFlight> in_flight;
  InFlight next{first, 0};
  for (;;) {
    // Nobody needs to know whether another batch comes before a forward of it
    // is due: until then this stage must not wait for its header.
    const bool ended = next.micro_batch == next.batch.micro_batches;
    if (ended && !next.batch.drains && order.WantsForward()) {
      PACELINE_ASSIGN_OR_RETURN(const std::optional<BatchInfo> batch,
                                NextBatch(next.batch.ordinal + 1));
      // Nobody has turns in training, so there is one.
      next = {*batch, 0};
      continue;
    }
    const bool more = !ended || !next.batch.drains;
    switch (order.Decide(more)) {
      case AsynchronousOrder::Next::kForward:
        PACELINE_RETURN_IF_ERROR(engine.UseVersion(
            base + order.VersionOfNext(options_.vertical_sync)));
        PACELINE_RETURN_IF_ERROR(StreamForward(next));
        in_flight.push_back(next);
        ++next.micro_batch;
        order.OnForward();
        break;
      case AsynchronousOrder::Next::kBackward: {
        order.OnBackward();
        // At the end of a stream nobody to come wants what there is.
        const int64_t version =
            more ? base + order.VersionOfNext(options_.vertical_sync)
                 : updates_ + 1;
        PACELINE_RETURN_IF_ERROR(StreamBackward(in_flight.front(), version));
        in_flight.pop_front();
        break;
      }
      case AsynchronousOrder::Next::kNothing:
        return next.batch;
    }
  }
}

absl::Status StageRunner::Do(Op op, const InFlight& what) {
  const Instruction instruction{own_stages_.front(), op, what.micro_batch};
  PACELINE_RETURN_IF_ERROR(Execute(instruction, what.batch));
  parts_.observer.OnProgress(instruction, what.batch);
  return absl::OkStatus();
}

absl::Status StageRunner::StreamForward(const InFlight& what) {
  const int stage = own_stages_.front();
  // The last stage has one micro-batch in flight, so sums of two batches do not
  // mix; others have no loss.
  if (what.micro_batch == 0) losses_ = {};
  PACELINE_RETURN_IF_ERROR(Do(stage == 0 ? Op::kLoad : Op::kRecvF, what));
  PACELINE_RETURN_IF_ERROR(Do(Op::kForward, what));
  if (stage + 1 == stages_) return absl::OkStatus();
  return Do(Op::kSendF, what);
}

absl::Status StageRunner::StreamBackward(const InFlight& what,
                                         int64_t next_version) {
  const int stage = own_stages_.front();
  if (stage + 1 < stages_) PACELINE_RETURN_IF_ERROR(Do(Op::kRecvB, what));
  PACELINE_RETURN_IF_ERROR(Do(Op::kBackward, what));
  if (stage > 0) PACELINE_RETURN_IF_ERROR(Do(Op::kSendB, what));
  PACELINE_RETURN_IF_ERROR(parts_.engines.at(stage)->UseVersion(next_version));
  return Do(Op::kUpdate, what);
}

// The rates come from the number of the update; the norm and the check for
// numbers that are none are those of this stage alone.
absl::Status StageRunner::Update(const InFlight& what) {
  const int stage = own_stages_.front();
  StageEngine& engine = *parts_.engines.at(stage);
  const ScopedPart part(parts_.time, TimePart::kOptimizer);
  const Instant begin = parts_.clock.Now();
  BatchInfo alone = what.batch;
  alone.step = updates_;
  alone.samples = MicroBatchSamples(what.batch, options_.train.micro_batch,
                                    what.micro_batch);
  // All who share a parameter are on this stage.
  PACELINE_RETURN_IF_ERROR(ties_.AddGradients(alone));
  PACELINE_ASSIGN_OR_RETURN(StepReport report, engine.Report(alone));
  report.stage = stage;
  const StepVerdict verdict =
      DecideStep(options_.train, what.batch.total_micro_batches, {report});
  PACELINE_RETURN_IF_ERROR(engine.Apply(verdict));
  if (!verdict.skip) PACELINE_RETURN_IF_ERROR(ties_.ShareValues(alone));
  ++updates_;
  flow_.OnUpdate(parts_.clock.Now() - begin);
  const StashReading stash = engine.Stash();
  StageTime& time = stage_times_[stage];
  time.staleness += stash.staleness;
  time.versions = std::max(time.versions, stash.versions);
  time.version_bytes = std::max(time.version_bytes, stash.bytes);
  ++time.updates;
  time.skipped_updates += verdict.skip;
  batch_skipped_ = batch_skipped_ || verdict.skip;
  if (verdict.skip) parts_.observer.OnSkippedUpdate(updates_, verdict.why);
  if (what.micro_batch + 1 == what.batch.micro_batches) {
    FinishStreamedBatch(what.batch, verdict);
  }
  return absl::OkStatus();
}

void StageRunner::FinishStreamedBatch(const BatchInfo& batch,
                                      const StepVerdict& last) {
  StepVerdict verdict = last;
  verdict.step = batch.step;
  // Single updates are skipped, not a batch.
  verdict.skip = false;
  std::optional<StepRecord> record;
  if (own_stages_.back() == stages_ - 1) {
    record = StepRecord{batch.step + 1,
                        MeanLoss(),
                        batch.samples,
                        last.learning_rate,
                        last.gradient_norm,
                        batch_skipped_,
                        absl::ToUnixMillis(parts_.clock.Today())};
  }
  batch_skipped_ = false;
  parts_.observer.OnStep(verdict, batch.samples, record);
  SayBatch(batch);
  SayUnreadable();
}

}  // namespace paceline
