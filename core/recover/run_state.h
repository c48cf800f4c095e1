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
// time.  Lives as long as the process: the process must not begin again what it
// has left.  Orders come in the order of their numbers.  Thread-compatible.
class WorkState {
 public:
  virtual ~WorkState() = default;

  // The newest order names this run, or none.
  WorkStep OnOrder(OrderNumber number, const std::optional<Fence>& run);
  // The run that was to be left has ended.
  WorkStep OnLeft();

  // Begun or to be begun, and not left yet; it may have ended by itself.
  const std::optional<Fence>& run() const { return run_; }
  // Whether run() goes on as far as the newest order says.
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
