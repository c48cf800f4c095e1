// WorkState decides which run a worker's process begins and leaves, and
// SnapshotClock which steps stage 0 marks and when it waits.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/recover/order.h"
#include "core/transfer/frame.h"

namespace paceline {

enum class WorkStep : uint8_t {
  kNothing,
  kLeave,  // end the run, without its open step; then call OnLeft()
  kBegin,  // begin run()
};

// Follows the standing orders of one process, which carries out one run at a
// time.  It lives as long as the process, which must not begin again a run that
// it has left.  Orders come in the order of their numbers.  Thread-compatible.
class WorkState {
 public:
  virtual ~WorkState() = default;

  // The newest order names this run, or none.
  WorkStep OnOrder(OrderNumber number, const std::optional<Fence>& run);
  // The run that was to be left has ended.
  WorkStep OnLeft();

  // The run begun or to begin, until it is left; it may have ended by itself.
  const std::optional<Fence>& run() const { return run_; }
  // Whether the newest order lets run() go on.
  bool GoesOn() const { return run_.has_value() && !leaving_; }
  // The number of the newest order that is carried out.
  OrderNumber echo() const { return carried_out_; }
  // Errors: Aborted  the process has left run(), or a later run of its job
  absl::Status CheckNew() const;

 protected:
  // Virtual for the simulation's flaws.
  virtual bool HasLeft(const Fence& fence) const { return left_.Has(fence); }

 private:
  WorkStep CarryOut();

  OrderNumber number_;  // of the newest order
  OrderNumber carried_out_;
  std::optional<Fence> ordered_;  // by the newest order
  std::optional<Fence> run_;
  bool leaving_ = false;
  LeftFences left_;
};

struct SnapshotPolicy {
  int64_t every = 10;  // steps that a failure may cost; 0: all of them
  // A coordinator that has acknowledged nothing for this long computes no
  // floor: stage 0 does not wait for it.
  absl::Duration patience = absl::Seconds(1);
};

// Stage 0 decides for all stages.  (If each decided for itself, they would see
// the last snapshot complete at different steps, and no snapshot would ever be
// complete again.)  Thread-compatible.
class SnapshotClock {
 public:
  // start: the step at which the attempt begins; all stages deposit it.
  SnapshotClock(const SnapshotPolicy& policy, int64_t start)
      : policy_(policy), last_mark_(start) {}

  // Asked once a step. floor: the step of the floor that the worker knows.  A
  // mark comes half an interval after the last one at the earliest.  It comes
  // later if snapshots are complete after few steps: they cost less then, and a
  // failure still costs no more than an interval.
  bool ShouldMark(int64_t step, int64_t floor);
  void OnMarked(int64_t step);
  // Whether step + 1 must not begin yet: a failure would cost too many steps,
  // and the coordinator may still raise the floor to a marked snapshot.
  // acknowledged: when the coordinator last acknowledged something.
  bool MustWait(int64_t step, int64_t floor, Instant acknowledged,
                Instant now) const;

 private:
  const SnapshotPolicy policy_;
  int64_t last_mark_;
  bool complete_ = false;  // the floor has reached the last mark
  // Steps until it did.  A long lag shrinks by one with each mark.
  int64_t lag_ = 0;
};

}  // namespace paceline
