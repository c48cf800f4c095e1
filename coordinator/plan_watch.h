// PlanWatch keeps, of one pipeline, how fast its workers compute now and how
// long a restart takes, and decides whether a better plan pays.
//
// Assumes: a worker that takes f times as long as expected for its own layers
// would take f times as long for any others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/records.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
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

  // The job has stopped, or has not begun yet; again: nothing.
  //   to_move  for a better plan
  void OnStopped(bool to_move, Instant now);
  // It waits for something else than its own restart.
  void OnPaused() { stopped_.reset(); }
  // All workers run the attempt.
  void OnRunning(const JobRecord& record, Instant now);

  // Whether some seconds have passed since it last was true.
  bool IsDue(Instant now);
  // Takes what the stages took since it last returned true.  False: too little
  // to go by.  After 10 s little is enough, and a stage that computed nothing,
  // as a replica that is done, stays as slow as it was.
  //   expected  of the present plan, with no worker slow
  bool Measure(const JobRecord& record, const v1::RunEstimate& expected,
               Instant now);
  // How many times as long as expected its layers take; of a process that did
  // not compute for the job, as of the middle one of those that did.
  double SlownessOf(const MemberId& process) const;
  // Measured when Measure() last returned true; of inference, the time between
  // two micro-batches.
  double step_seconds() const { return step_seconds_; }
  // From the end of work to the next begin, when that was last so.
  absl::Duration restart() const { return restart_; }
  MoveVerdict Decide(const MoveEstimate& estimate, Instant now) {
    return repartition_.Decide(estimate, now);
  }

 private:
  struct Stopped {
    bool to_move = false;
    Instant since;
  };
  // Sums since the attempt began.
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

// The state of layers that another machine has to get.
struct StateTransfer {
  int64_t bytes = 0;            // to or from the busiest worker
  double bytes_per_second = 0;  // of the slowest link that takes part
};
StateTransfer TransferOf(const JobSpec& spec, const ModelDescription& model,
                         const std::vector<StageOfPlan>& from,
                         const std::vector<StageOfPlan>& to,
                         const Membership& membership,
                         const Measurements& measured);

}  // namespace paceline
