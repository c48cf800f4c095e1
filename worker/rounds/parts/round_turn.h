// RoundTurns queues the next turns of a member's compute thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/cluster/run_order.h"
#include "core/os/thread.h"
#include "core/round/message.h"
#include "core/round/rules/rule.h"
#include "core/round/view.h"
#include "worker/pipeline/piece_store.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {

struct RoundTurn {
  enum class Kind : uint8_t {
    kPart,     // compute the part of `step`, by the division of `view`
    kApply,    // the result of `step` is final
    kOffer,    // AnswerState() with the state as it is now
    kFetch,    // AnswerState() with the state that `offer` names
    kRestore,  // take over `state`, which has `step` steps in it
    kLoss,    // AnswerLoss(f(x - loss_step * direction)), direction empty: f(x)
    kDone,    // all steps are applied; told once
    kUpload,  // this member shall hand the weights over; told once
    kMeet,    // gossip: average with `theirs` after `step`; null: go on without
    kWait,    // no turn has come: report that this thread lives
  };
  Kind kind = Kind::kPart;
  int64_t step = 0;

  View view;  // kPart

  // kApply.  sums [shards]: bytes of each shard as RoundShape cuts and codes
  // them; empty: the round is void.
  RoundResult result;
  std::vector<std::shared_ptr<RoundPayload>> sums;
  int64_t divisor = 0;  // of what WriteResult() writes; 0: void

  // kFetch.
  RoundMessage offer;
  PieceSource source;

  // kRestore, and the answers to kOffer and kFetch.  [layers]
  std::vector<PiecePtr> state;
  uint64_t state_hash = 0;

  // kMeet: this member owns it, and may write over it.
  std::shared_ptr<RoundPayload> theirs;

  // kLoss; valid until it is answered.
  absl::Span<const float> direction;
  double loss_step = 0;
  int64_t question = 0;  // LossRequests's number of it
};

// Writes the result of a kApply that is not void, as float32, to `gradient`
// [values of the shape]; divide it by turn.divisor.  Shards with another
// divisor than the first are scaled to it.
void WriteResult(const RoundTurn& turn, const RoundShape& shape,
                 absl::Span<float> gradient);

// The same result in place: the gradient's chunks in order, float32, in the
// memory of turn.sums.  Nothing if values would have to be decoded or scaled.
std::optional<std::vector<absl::Span<const float>>> ResultInPlace(
    const RoundTurn& turn, const RoundShape& shape);

// Thread-safe.  Turns come in the order in which they were pushed; a part is
// asked for when nothing else is to be done.
class RoundTurns {
 public:
  explicit RoundTurns(int64_t total_steps) : total_steps_(total_steps) {}

  // The state of the member on which turns depend.
  struct State {
    std::optional<View> view;  // adopted
    int64_t next = 0;          // steps applied, by the state machine
    bool has_state = false;    // no listener that waits for its first state
    bool needs_part = false;
    bool uploads = false;
  };
  void Publish(State state);
  State state() const {
    const SteadyLock lock(&mutex_);
    return state_;
  }

  void Push(RoundTurn turn) {
    const SteadyLock lock(&mutex_);
    turns_.push_back(std::move(turn));
  }
  // Ends every wait with `why`; the first call counts.
  void End(absl::Status why);

  // Returns a kWait after `longest`.
  // Errors: that of End()
  absl::StatusOr<RoundTurn> Await(
      absl::Duration longest = absl::InfiniteDuration());
  // Takes the first kOffer out of the queue, if there is one; never waits.
  std::optional<RoundTurn> TryTakeOffer();
  // Whether a queued turn, or the end, makes the part of `step` useless.
  bool IsOver(int64_t step) const;
  // The part of `step` is handed in: it is not asked for again.
  void OnPart(int64_t step) {
    const SteadyLock lock(&mutex_);
    part_step_ = std::max(part_step_, step);
  }
  // The number of the compute thread's present turn, from 1 on.  0: none, or
  // one that may take any time (kFetch, kDone, kUpload).
  int64_t turn() const {
    const SteadyLock lock(&mutex_);
    return at_turn_ ? given_ : 0;
  }
  // The number of kApply turns that wait.
  int64_t results() const;

 private:
  bool HasTurn() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool PartIsDue() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool DoneIsDue() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !told_done_ && state_.has_state && state_.next >= total_steps_;
  }
  bool UploadIsDue() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return told_done_ && !told_upload_ && state_.uploads;
  }

  const int64_t total_steps_;

  mutable SteadyMutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  std::deque<RoundTurn> turns_ ABSL_GUARDED_BY(mutex_);
  int64_t part_step_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t given_ ABSL_GUARDED_BY(mutex_) = 0;  // turns
  bool at_turn_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_upload_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

// zeno's loss on a trusted batch: asked for by the thread that sums, computed
// by the compute thread when its turn comes.

// Thread-safe; one question at a time.  A question points to memory of the
// asking thread.  Once the compute thread has taken the question, the asking
// thread waits for its answer in any case.
class LossRequests final : public TrustedLoss {
 public:
  // turns outlives this.
  explicit LossRequests(RoundTurns& turns) : turns_(turns) {}

  // Waits for the answer.  Errors: the answer's; Cancelled: the compute thread
  // did not take the question, and will not.
  absl::StatusOr<double> After(absl::Span<const float> direction,
                               double step) override;

  // The compute thread has a kLoss turn.  True: it answers now.  False: the
  // question was withdrawn, and what it points to may be gone.
  bool Take(const RoundTurn& turn);
  void Answer(absl::StatusOr<double> loss) {
    const absl::MutexLock lock(&mutex_);
    answer_ = std::move(loss);
  }

  // From a Shut() to its Reopen(), questions that were not taken are withdrawn,
  // and new ones refused: the compute thread waits for memory that the asking
  // thread still reads.  Any thread ends the requests by a Shut() alone.
  void Shut() { Add(1); }
  void Reopen() { Add(-1); }

 private:
  bool IsSettled() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return answer_.has_value() || (!taken_ && shut_ > 0);
  }
  void Add(int shut) {
    const absl::MutexLock lock(&mutex_);
    shut_ += shut;
  }

  RoundTurns& turns_;

  absl::Mutex mutex_;
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;  // number of a question
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none is
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::StatusOr<double>> answer_ ABSL_GUARDED_BY(mutex_);
  int shut_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: open
};

}  // namespace paceline
