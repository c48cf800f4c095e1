// WorkState decides, on a worker, what of a job's orders is to be done next,
// and SnapshotClock which steps stage 0 marks and when it waits.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/recover/order.h"

namespace paceline {

// --- What the worker has to do, in this order --------------------------------

// Cancel what runs and drop the open step; then call OnLeft().
//   keep_state  a replica: the state and the held result stay, unchanged
struct LeaveRun {
  bool keep_state = false;
};
// Get the base's pieces of its layers, from its own store or pulled from two
// sources at once, build the stages and share tied values once; then call
// OnGathered() or OnFailed().
struct GatherPieces {};
// Train.  Data source, gate and update counter begin at `step`.
struct BeginRun {
  int64_t step = 0;
};
// Copy its layers into the store; buffers are first restored to what they were
// after that step.
struct DepositPieces {
  Cut cut;
};
// A replica's kept state: apply the held result of this step.
struct ApplyHeld {
  int64_t step = 0;
};
// Forget the state that was kept.
struct DropKept {};

using WorkAction = std::variant<LeaveRun, GatherPieces, BeginRun, DepositPieces,
                                ApplyHeld, DropKept>;
using WorkActions = std::vector<WorkAction>;

// The machine (state, event) -> (state, actions) of one job on one worker
// process; README.md has its table.  Lives as long as the process: what it has
// left it must not begin again.  Thread-compatible.
class WorkState {
 public:
  // last_step: of the job.
  WorkState(const MemberId& self, int64_t last_step)
      : self_(self), last_step_(last_step) {}
  virtual ~WorkState() = default;

  // An order that is not newer than the last one changes nothing.
  void OnOrder(const JobOrder& order, WorkActions& actions);
  // LeaveRun is carried out.  kept: what it was to keep.
  void OnLeft(std::optional<KeptState> kept, WorkActions& actions);
  void OnGathered(WorkActions& actions);
  // A step is applied.
  //   marked  stage 0 marked it in its headers
  //   last    stage 0 named it as the last batch before a stop
  void OnApplied(int64_t step, bool marked, bool last, WorkActions& actions);
  // No source left (Unavailable), or whatever ended the run.
  void OnFailed(const absl::Status& error);

  WorkPhase phase() const { return phase_; }
  // Its own layers in the run that it has or gathers for, by stage.
  std::vector<LayerRange> OwnLayers() const;
  // The run that it has or gathers for; null when idle.
  const RunPlan* run() const { return run_.has_value() ? &*run_ : nullptr; }
  const KeepRule& keep() const { return order_.keep; }
  const std::vector<Follow>& follow() const { return order_.follow; }
  bool settle() const { return order_.settle; }
  // The newest floor that it was told; a lower one of its attempt is ignored.
  Cut floor() const { return floor_; }
  // Without pieces and what only the adapter knows.
  JobReport Report() const;

 protected:
  // Virtual for the simulation's flaws.
  virtual bool HasLeft(int64_t attempt) const { return attempt <= left_; }

 private:
  void CarryOut(WorkActions& actions);
  bool HasReplicas() const;
  void Finish(int64_t step, WorkActions& actions);

  const MemberId self_;
  const int64_t last_step_;
  WorkPhase phase_ = WorkPhase::kIdle;
  JobOrder order_;  // the newest
  OrderNumber carried_out_;
  std::optional<RunPlan> run_;
  bool leaving_ = false;  // LeaveRun is not carried out yet
  int64_t left_ = 0;      // the newest attempt that it has left
  int64_t step_ = 0;
  Cut floor_;
  absl::Status error_;
  std::optional<KeptState> kept_;
  int64_t kept_attempt_ = 0;
};

struct SnapshotPolicy {
  int64_t every = 10;  // steps that a failure may cost; 0: all of them
  // The coordinator computes no floor while it has not acknowledged anything
  // for as long: nobody is to wait for it.
  absl::Duration patience = absl::Seconds(1);
};

// Stage 0's: one stage decides for all.  (Judged by each stage for itself, "the
// snapshot before is complete" comes true at different steps, and none is ever
// complete again.)  Thread-compatible.
class SnapshotClock {
 public:
  // start: the step at which the attempt begins; deposited by all.
  SnapshotClock(const SnapshotPolicy& policy, int64_t start)
      : policy_(policy), last_mark_(start) {}

  // Asked once a step.  floor: its step, as the worker knows it.  Half an
  // interval after the last mark at the earliest; later where snapshots are
  // complete after few steps, so that they cost less and a failure costs no
  // more than an interval.
  bool ShouldMark(int64_t step, int64_t floor);
  void OnMarked(int64_t step);
  // Whether step + 1 must not begin yet: too much would be lost, and the
  // coordinator, which acknowledged something at `acknowledged`, may raise the
  // floor to a snapshot that was marked.
  bool MustWait(int64_t step, int64_t floor, Instant acknowledged,
                Instant now) const;

 private:
  const SnapshotPolicy policy_;
  int64_t last_mark_;
  bool complete_ = false;  // the floor has reached the last mark
  // Steps until it did; a longer one is forgotten by one a mark.
  int64_t lag_ = 0;
};

}  // namespace paceline
