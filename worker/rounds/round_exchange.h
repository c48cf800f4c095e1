// A member's exchange in rounds: it drives the state machine of core/round over
// a transport, keeps the bytes, and tells the compute thread what to do next.
//
// A member's compute thread:
//
//   RoundExchange rounds(options, clock, observer);
//   rounds.Start(transport);                // made with &rounds as its sink
//   rounds.OnGroup(order.group);            // now and whenever it changes
//   for (;;) {
//     ASSIGN(RoundTurn turn, rounds.AwaitTurn());
//     switch (turn.kind) {
//       case kPart:   // compute the gradient of turn.step
//         rounds.BeginPart({turn.step, division, gradient});
//         rounds.MarkReady(0);           // or in parts, from the last layer on
//         rounds.FinishPart(samples);
//       case kApply:  // the same on all members
//         rounds.AwaitPartReleased();
//         ResultInPlace() or WriteResult();     // to divide by turn.divisor
//         rounds.OnApplied(turn.step + 1, hash of the state);
//     }
//   }
//   transport.Close();
//   rounds.Stop();
//   rounds.AwaitPartReleased();             // then the gradient may go
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "worker/rounds/group_exchange.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_sum.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/rounds/parts/round_turn.h"
#include "worker/rounds/peer_links.h"
#include "worker/rounds/round_driver.h"

namespace paceline {

// Thread-safe; the methods of the compute thread are for one thread.  Has two
// threads of its own: "rounds" runs the state machine, "aggregate" sums.
class RoundExchange final : public DriverExchange<RoundDriver>,
                            private SumSink {
 public:
  // clock and observer outlive this.
  RoundExchange(RoundExchangeOptions options, const Clock& clock,
                RoundObserver& observer);
  ~RoundExchange() override;

  // GroupExchange.  A part that was begun is read beyond Stop(), until
  // AwaitPartReleased().
  absl::Status Start(RoundTransport& transport) override;
  void Stop(absl::Status why = Cancelled("the run has ended")) override;
  void Cancel(absl::Status why) override;
  MemberReport Report() const override;

  // --- Compute thread ---

  absl::StatusOr<RoundTurn> AwaitTurn(
      absl::Duration longest = absl::InfiniteDuration()) override;
  // Whether the part of `step` is of no use any more; asked between two
  // micro-batches.
  bool IsOver(int64_t step) const { return turns_.IsOver(step); }

  // Begins this member's part.  The gradient's memory is read until
  // AwaitPartReleased(), and must not change.
  void BeginPart(const PartOptions& part);
  // Values [begin, values) are final.  Descending.
  void MarkReady(size_t begin) { part_->MarkReady(begin); }
  // samples: labels that the sum covers; 0: there is nothing usable.
  void FinishPart(int64_t samples);
  // Replaces BeginPart to FinishPart where the member has nothing to hand in.
  void SkipPart(int64_t step, uint64_t division);
  // Drops the part that was begun, finished or not, and waits until no thread
  // reads the gradient's memory any more.  Called after kApply, when IsOver(),
  // and before that memory is freed: then close the transport and stop this
  // object first.
  void AwaitPartReleased();

  // The compute thread has applied `next` steps.
  void OnApplied(int64_t next, uint64_t state_hash);
  void AnswerLoss(absl::StatusOr<double> loss) {
    loss_.Answer(std::move(loss));
  }

  const RoundShape& shape() const { return shape_; }

  // RoundSink.
  absl::StatusOr<std::shared_ptr<RoundPayload>> OnPayload(
      const MemberId& from, const PayloadKey& key, size_t bytes) override;

 private:
  // SumSink, on the aggregate thread.
  void OnPartChecked(const RoundMessage& offer, PartCheck check) override;
  void OnDecided(const SumRequest& request,
                 std::shared_ptr<RoundPayload> sum) override;
  void OnSummed(const SumRequest& request, std::shared_ptr<RoundPayload> sum,
                const SumVerdict& verdict) override;

  std::shared_ptr<RoundPayload> PartMemory(const MemberId& from,
                                           const PayloadKey& key);
  void PostPart(OwnPart own, int64_t step);

  Arrivals arrivals_;
  LossRequests loss_;
  std::unique_ptr<RoundPart> part_;  // of the compute thread
  RoundSum sum_;
};

}  // namespace paceline
