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
//         desk.MarkReady(0);              // or from the last layer to the first
//         desk.FinishPart(samples);
//       case kApply:  // the same on all members
//         desk.AwaitPartReleased();
//         WriteResult(turn, desk.shape(), g);   // to divide by turn.divisor
//         desk.OnApplied(turn.step + 1, hash of the state);
//     }
//   }
//   transport.Close();
//   desk.Stop();
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/thread.h"
#include "core/cluster/run_order.h"
#include "core/cluster/run_report.h"
#include "core/model/job_spec.h"
#include "core/round/round_member.h"
#include "worker/round_chronicle.h"
#include "worker/round_part.h"
#include "worker/round_shape.h"
#include "worker/round_store.h"
#include "worker/round_sum.h"
#include "worker/round_transport.h"

namespace paceline {

struct RoundDeskOptions {
  int64_t attempt = 0;
  MemberId self;
  AggregationSpec aggregation;  // mode rolling or central
  size_t values = 0;            // float32 of the gradient
  size_t state_bytes = 0;       // of the engine's state
  int64_t total_steps = 0;      // no part of later ones is asked for
  // What the state has in it.
  int64_t next = 0;
  uint64_t state_hash = 0;  // 0: it is to be fetched from a donor
  // zeno without gamma: the learning rate of a step.
  std::function<double(int64_t step)> learning_rate = nullptr;
  absl::Duration retry_period = absl::Milliseconds(100);
  absl::Duration lease = absl::Seconds(3);
};

// What the compute thread shall do next.
struct RoundTurn {
  enum class Kind : uint8_t {
    kPart,     // compute the part of `step`, of which `view` says what is whose
    kApply,    // the result of `step` is final
    kRestore,  // take `state` over: it has `step` steps in it
    kCopy,     // SendState() the state as it is now
    kLoss,     // AnswerLoss(f(x - loss_step * direction)), direction empty: f(x)
    kDone,     // all steps are applied; told once
    kUpload,   // and this member shall hand the weights over; told once
  };
  Kind kind = Kind::kPart;
  int64_t step = 0;

  View view;  // kPart

  // kApply.  sums [shards]: bytes of each shard as RoundShape cuts and codes
  // them; empty: the round is void.
  RoundResult result;
  std::vector<std::shared_ptr<RoundPayload>> sums;
  int64_t divisor = 0;  // of what WriteResult() writes; 0: void

  // kRestore.
  std::shared_ptr<RoundPayload> state;
  uint64_t state_hash = 0;

  // kLoss; valid until it is answered.
  absl::Span<const float> direction;
  double loss_step = 0;
};

// The result of a kApply that is not void, as float32, into `gradient` [values
// of the shape]: to be divided by turn.divisor.  Shards that are to be divided
// by another number than the first are scaled to it.
void WriteResult(const RoundTurn& turn, const RoundShape& shape,
                 absl::Span<float> gradient);

// XXH3-64 of a state's bytes, as StageEngine::StateHash().
uint64_t HashState(absl::Span<const uint8_t> bytes);

// Hears what the coordinator and the metrics shall know; called on the desk's
// thread, quick.
class RoundObserver {
 public:
  virtual ~RoundObserver() = default;
  virtual void OnRound(const RoundRecord& record) = 0;
  // Report() says something else than before that should not wait.
  virtual void OnMemberChanged() = 0;
};

// Thread-safe; the methods of the compute thread are for one thread.  Has two
// threads of its own: "rounds" runs the state machine, "aggregate" sums.
class RoundDesk final : public RoundSink, private SumSink {
 public:
  // clock and observer outlive this.
  RoundDesk(RoundDeskOptions options, const Clock& clock,
            RoundObserver& observer);
  ~RoundDesk() override;

  // Before everything else.  transport: outlives Stop().
  // Errors: InvalidArgument  the rule, the codec
  absl::Status Start(RoundTransport& transport);
  // Ends both threads and every wait with `why`; again: nothing.
  void Stop(absl::Status why = absl::CancelledError("the run has ended"));

  // The standing order's group, whole.
  void OnGroup(const GroupOrder& group);

  // --- Compute thread ---

  // Waits for something to do.  Errors: that of Stop(); Aborted  this member
  // was excluded: only another process of this worker can come back.
  absl::StatusOr<RoundTurn> AwaitTurn();
  // Between two micro-batches: the part of `step` is of no use any more.
  bool IsOver(int64_t step) const;
  // A turn that does not wait for the part: kCopy.
  std::optional<RoundTurn> TryTurn();

  // Its own part: the gradient's memory is read until AwaitPartReleased(), and
  // must not change.
  void BeginPart(const PartOptions& part);
  // Values [begin, values) are final.  Descending.
  void MarkReady(size_t begin);
  // samples: labels that the sum covers; 0: there is nothing usable.
  void FinishPart(int64_t samples);
  // Instead of BeginPart to FinishPart: it has nothing to hand in.
  void SkipPart(int64_t step, uint64_t division);
  // Drops a part that was begun and not finished.
  void DropPart();
  // Nobody reads the gradient's memory any more.  After kApply, or DropPart().
  void AwaitPartReleased();

  // `next` steps are applied now.
  void OnApplied(int64_t next, uint64_t state_hash);
  // The answer to kCopy: complete bytes of the state after `next` steps.
  void SendState(int64_t next, uint64_t state_hash,
                 std::shared_ptr<RoundPayload> state);
  void AnswerLoss(absl::StatusOr<double> loss);

  // --- Any thread ---

  const RoundShape& shape() const { return shape_; }
  MemberReport Report() const;
  RoundStats Stats() const;
  // As it is now; nothing before the first one that has this member.
  std::optional<View> view() const;

  // RoundSink.
  absl::StatusOr<std::shared_ptr<RoundPayload>> OnPayload(
      const MemberId& from, const PayloadKey& key, size_t bytes) override;
  void OnMessage(RoundMessage message,
                 std::shared_ptr<RoundPayload> payload) override;
  void OnLink(const MemberId& peer, bool up, bool refused) override;
};

}  // namespace paceline
