// PlanWatch measures how fast one pipeline's workers compute and how long its
// restart takes, and decides whether a better plan pays.
//
// Assumes: a worker that takes f times the expected time for its own layers
// takes f times the expected time for any layers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/records.h"
#include "core/base/clock.h"
#include "core/cluster/membership.h"
#include "core/model/description.h"
#include "core/plan/inputs.h"
#include "core/plan/plan.h"
#include "core/recover/repartition.h"
#include "core/round/view.h"

namespace paceline {

// Thread-compatible.
class PlanWatch {
 public:
  explicit PlanWatch(const RepartitionPolicy& policy = {})
      : repartition_(policy) {}

  // The job has stopped, or has not begun yet.  Repeating it changes nothing.
  //   to_move  it stops to move to a better plan
  void OnStopped(bool to_move, Instant now);
  // The job waits for something other than its own restart.
  void OnPaused() { stopped_.reset(); }
  // All workers run the attempt.
  void OnRunning(const JobRecord& record, Instant now);

  // True when 5 s have passed since it was last true.
  bool IsDue(Instant now);
  // Measures the stages' times since it last returned true.  False: too few
  // micro-batches.  After 10 s any number will do, and a stage that computed
  // nothing, such as a finished replica, keeps its slowness.
  //   expected  for the present plan, with no worker slow
  bool Measure(const JobRecord& record, const v1::RunEstimate& expected,
               Instant now);
  // The measured over the expected time of its layers.  A process that did not
  // compute for the job gets the median of those that did.
  double SlownessOf(const MemberId& process) const;
  // Measured when Measure() last returned true.  For inference it is the time
  // between two micro-batches.
  double step_seconds() const { return step_seconds_; }
  // The last time from the end of work to the next begin.
  absl::Duration restart() const { return restart_; }
  MoveVerdict Decide(const MoveEstimate& estimate, Instant now) {
    return repartition_.Decide(estimate, now);
  }

 private:
  struct Stopped {
    bool to_move = false;
    Instant since;
  };
  // Totals since the attempt began.
  struct Sums {
    std::vector<v1::StageTime> stages;
    double seconds = 0;  // of the steps
    int64_t steps = 0;
    Instant at;
  };
  static Sums SumsOf(const JobRecord& record, Instant now);

  Repartition repartition_;
  std::optional<Stopped> stopped_;
  absl::Duration restart_ = absl::Seconds(5);  // until it is measured
  Instant due_;
  Sums taken_;
  double step_seconds_ = 0;
  std::map<MemberId, double> slowness_;
};

// The layers' state that moves to another machine.
struct StateTransfer {
  int64_t bytes = 0;            // to or from the busiest worker
  double bytes_per_second = 0;  // of the slowest link used
};
StateTransfer TransferOf(const JobSpec& spec, const ModelDescription& model,
                         const std::vector<StageOfPlan>& from,
                         const std::vector<StageOfPlan>& to,
                         const Membership& membership,
                         const Measurements& measured);

}  // namespace paceline
