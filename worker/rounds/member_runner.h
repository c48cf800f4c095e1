// The compute thread of a group's member takes turns from the exchange.
// MemberRunner is what it has in common in rounds and in gossip.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/cluster/run_order.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/optim/step_gate.h"
#include "core/os/thread.h"
#include "core/round/view.h"
#include "worker/meters/time_meter.h"
#include "worker/pipeline/batch_source.h"
#include "worker/pipeline/piece_store.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/pipeline/stage_runner.h"
#include "worker/rounds/faults.h"
#include "worker/rounds/group_exchange.h"
#include "worker/rounds/parts/round_turn.h"

namespace paceline {

class GossipExchange;
class RoundExchange;

struct MemberOptions {
  JobSpec spec;
  ModelDescription model;
  MemberId self;
  FaultPlan faults = {};
  int64_t base = 0;             // steps that the engine's state has
  bool evaluates_base = false;  // the evaluation after them is still due
  int64_t skipped_in_row = 0;   // steps, up to the base
};

// All outlive the runner.
struct MemberParts {
  StageEngine& engine;  // with flat_gradient
  BatchSource& source;
  FaultActions& fault_actions;
  TimeMeter& time;
  const Clock& clock;
  RunObserver& observer;
  const CancelToken& cancel;
  // All steps are applied here.  uploads: this worker hands the weights over
  // next, by `upload`.
  std::function<void(bool uploads)> on_done;
  std::function<absl::Status()> upload;
  // The engine has the state after `steps` steps.  All members are known to
  // have had the same one after `compared` steps; nothing: this state is not
  // deposited, since it came from another member or awaits the mean with one.
  // Returns whether the others wait for this state's hash.
  std::function<bool(int64_t steps, std::optional<int64_t> compared)> on_state;
  // Copies the state, which has `steps` steps.  Others can fetch it as long as
  // what is returned lives.
  std::function<std::vector<PiecePtr>(int64_t steps)> offer;
  // Fetches another member's state after `steps` steps.  Blocks.
  // Errors: those of PieceExchange::Gather()
  std::function<absl::StatusOr<std::vector<PiecePtr>>(
      int64_t steps, const PieceSource& source)>
      fetch;
};

// Lives on the compute thread.
class MemberRunner {
 public:
  virtual ~MemberRunner() = default;

  // Takes turns until the exchange is stopped, or until the engine, the data or
  // the upload fails.  Returns that error.
  absl::Status Run();

 protected:
  // exchange outlives this.
  MemberRunner(MemberOptions options, const MemberParts& parts,
               GroupExchange& exchange);

  // Called once, before the first turn.
  virtual absl::Status Begin() { return absl::OkStatus(); }
  // Takes a turn that only one mode has.
  virtual absl::Status Take(RoundTurn& turn) = 0;
  // The longest wait for a turn.
  virtual absl::Duration longest_wait() const {
    return absl::InfiniteDuration();
  }
  // Drops the open step.
  virtual void Abandon() {}
  // The engine has taken over a state with this hash.
  virtual void OnRestored(uint64_t /*state_hash*/) {}
  // No turn is ready: the thread is about to wait.
  virtual void OnIdle() {}

  // A step begins: the faults may kill, hang or delay this worker.
  absl::Status BeginStep(const StepFaults& faults, int64_t step);
  // Forward and backward of the next micro-batch that the source has prepared.
  // before_backward may be null.
  absl::Status ComputeMicroBatch(const BatchInfo& batch, int micro_batch,
                                 const StepFaults& faults,
                                 const std::function<void()>& before_backward);
  // The micro-batches of a step that are this member's.
  std::vector<int> OwnMicroBatches(const RoundTurn& turn,
                                   const BatchInfo& batch) const;

  // Tells the observer that the step is done.  own: the samples that count as
  // this member's; all: those that count as the step's.
  // Errors: those of SkipCount
  absl::Status Tell(const StepVerdict& verdict, const BatchInfo& batch,
                    int64_t own, int64_t all);
  // Computes this member's share of the evaluation that is due after `steps`
  // steps, if one is.
  absl::Status Evaluate(int64_t steps);

  // Offers the state as it is now; OfferIfAsked() only if another member asked
  // for it.
  //   turn  a kOffer
  virtual void OfferState(RoundTurn turn);
  void OfferIfAsked() {
    if (auto turn = exchange_.TryTakeOffer()) OfferState(*std::move(turn));
  }

  // The trainable weights in the engine's own memory, in the gradient's order.
  absl::StatusOr<std::vector<NamedTensor>> Trainable();

  const MemberOptions options_;
  const MemberParts parts_;
  const int64_t total_steps_;

  LossSums losses_;          // of the step so far
  int64_t applied_;          // steps that are in the state
  uint64_t state_hash_ = 0;  // of that state; 0: not known

 private:
  absl::Status TakeAny(RoundTurn& turn);
  absl::Status Fetch(RoundTurn turn);
  absl::Status Restore(const RoundTurn& turn);
  absl::Status EvaluateShare(const BatchInfo& batch,
                             const std::vector<int>& own, LossSums& sums);

  GroupExchange& exchange_;
  SkipCount skips_;
  bool evaluates_base_;
  v1::StageTime stage_time_;
  // When the last Tell() was; nothing: an evaluation or a restored state came
  // after it.
  std::optional<Instant> told_at_;
};

// Take turns until the exchange is stopped, or until the engine, the data or
// the upload fails, and return that error.  `parts` and `exchange` outlive the
// call.
absl::Status RunRounds(MemberOptions options, const MemberParts& parts,
                       RoundExchange& exchange);
absl::Status RunGossip(MemberOptions options, const MemberParts& parts,
                       GossipExchange& exchange);

}  // namespace paceline
