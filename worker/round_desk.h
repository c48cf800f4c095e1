// Where a worker takes part in the rounds of its group (DESIGN 7): drives the
// state machine of core/round over a transport, keeps the bytes, and tells the
// compute thread what to do next.
//
// A member's compute thread:
//
//   RoundDesk desk(options, clock, observer);
//   desk.Start(transport);                // made with &desk as its sink
//   desk.OnGroup(order.group);            // now and whenever it changes
//   for (;;) {
//     ASSIGN(RoundTurn turn, desk.AwaitTurn());
//     switch (turn.kind) {
//       case kPart:   // compute the gradient of turn.step
//         desk.BeginPart({.step = turn.step, .division = ..., .gradient = g});
//         desk.MarkReady(0);  // or piece by piece, from the last layer on
//         desk.FinishPart(samples);
//       case kApply:  // the same on all members
//         desk.AwaitPartReleased();
//         ResultInPlace() or WriteResult();     // to divide by turn.divisor
//         desk.OnApplied(turn.step + 1, hash of the state);
//     }
//   }
//   transport.Close();
//   desk.Stop();
//   desk.AwaitPartReleased();             // then the gradient may go
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/cluster/run_order.h"
#include "core/cluster/run_report.h"
#include "worker/arrivals.h"
#include "worker/block_pool.h"
#include "worker/driver_loop.h"
#include "worker/group_door.h"
#include "worker/loss_door.h"
#include "worker/round_chronicle.h"
#include "worker/round_driver.h"
#include "worker/round_part.h"
#include "worker/round_shape.h"
#include "worker/round_store.h"
#include "worker/round_sum.h"
#include "worker/round_transport.h"
#include "worker/round_turn.h"

namespace paceline {

// XXH3-64 of a state's bytes, as StageEngine::StateHash().
uint64_t HashState(absl::Span<const uint8_t> bytes);

// Thread-safe; the methods of the compute thread are for one thread.  Has two
// threads of its own: "rounds" runs the state machine, "aggregate" sums.
class RoundDesk final : public GroupDoor, private SumSink {
 public:
  // clock and observer outlive this.
  RoundDesk(RoundDeskOptions options, const Clock& clock,
            RoundObserver& observer);
  ~RoundDesk() override;

  // GroupDoor.  Start's errors: InvalidArgument  the rule or its numbers.  A
  // part that was begun is read beyond Stop(), until AwaitPartReleased().
  absl::Status Start(RoundTransport& transport) override;
  void Stop(
      absl::Status why = absl::CancelledError("the run has ended")) override;
  void Cancel(absl::Status why) override;
  void OnGroup(const GroupOrder& group) override;
  MemberReport Report() const override;
  RoundStats Stats() const override { return loop_.Stats(); }

  // --- Compute thread ---

  // Waits for something to do.  Errors: that of Stop(); Aborted  this member
  // was excluded: only another process of this worker can come back.
  absl::StatusOr<RoundTurn> AwaitTurn();
  // Between two micro-batches: the part of `step` is of no use any more.
  bool IsOver(int64_t step) const;
  // The next kCopy, if there is one: it need not wait for the part.
  std::optional<RoundTurn> TryTakeCopy() { return turns_.TryTakeCopy(); }

  // Its own part: the gradient's memory is read until AwaitPartReleased(), and
  // must not change.
  void BeginPart(const PartOptions& part);
  // Values [begin, values) are final.  Descending.
  void MarkReady(size_t begin);
  // samples: labels that the sum covers; 0: there is nothing usable.
  void FinishPart(int64_t samples);
  // Instead of BeginPart to FinishPart: it has nothing to hand in.
  void SkipPart(int64_t step, uint64_t division);
  // Drops the part that was begun, finished or not, and waits until nobody
  // reads the gradient's memory any more.  After kApply, when IsOver(), and
  // before that memory goes: the transport is closed then, and this stopped.
  void AwaitPartReleased();

  // This member hands the weights over at the end.
  bool uploads() const { return turns_.state().uploads; }

  // `next` steps are applied now.
  void OnApplied(int64_t next, uint64_t state_hash);
  // The answer to kCopy: complete bytes of the state after `next` steps.
  void SendState(int64_t next, uint64_t state_hash,
                 std::shared_ptr<RoundPayload> state);
  void AnswerLoss(absl::StatusOr<double> loss);

  // --- Any thread ---

  const RoundShape& shape() const { return shape_; }
  // As it is now; nothing before the first one that has this member.
  std::optional<View> view() const { return turns_.state().view; }

  // RoundSink.
  absl::StatusOr<std::shared_ptr<RoundPayload>> OnPayload(
      const MemberId& from, const PayloadKey& key, size_t bytes) override;
  void OnMessage(RoundMessage message,
                 std::shared_ptr<RoundPayload> payload) override;
  void OnLink(const MemberId& peer, bool up, bool refused) override;

 private:
  // SumSink, on the aggregate thread.
  void OnPartChecked(const RoundMessage& offer, PartCheck check) override;
  void OnDecided(const SumRequest& request,
                 std::shared_ptr<RoundPayload> sum) override;
  void OnSummed(const SumRequest& request, std::shared_ptr<RoundPayload> sum,
                const SumVerdict& verdict) override;

  absl::StatusOr<std::shared_ptr<RoundPayload>> PartMemory(
      const MemberId& from, const PayloadKey& key, size_t bytes);

  // Constant after construction, but for transport_, which Start() sets.
  const RoundDeskOptions options_;
  const RoundShape shape_;
  const Clock& clock_;
  RoundObserver& observer_;
  RoundTransport* transport_ = nullptr;

  Arrivals arrivals_;
  BlockPool pool_;
  RoundStore store_;
  RoundTurns turns_;
  LossDoor loss_;
  std::unique_ptr<RoundPart> part_;  // of the compute thread

  RoundSum sum_;
  DriverLoop<RoundDriver> loop_;
};

}  // namespace paceline
