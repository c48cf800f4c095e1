// The first stage's StepGate as many may use it at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/job/spec/job_spec.h"
#include "core/optim/step_gate.h"
#include "worker/pipeline/link.h"

namespace paceline {

// Thread-safe.
class SharedStepGate {
 public:
  // Called exactly once for every report: at once on the caller's thread, or
  // later on the thread that brings the last report or cancels.  Must be
  // quick.
  using Answer = std::function<void(absl::StatusOr<StepVerdict>)>;

  // As StepGate().
  SharedStepGate(const TrainSpec& train, int64_t total_steps,
                 std::vector<int> replicas, int64_t first_step = 0);
  ~SharedStepGate();  // as Cancel

  // Answers with the verdict of the report's step, or:
  //   those of StepGate::Add
  //   Aborted  the same stage asked again; only the last one asking is told
  //   any      what Cancel() was called with
  void Report(const StepReport& report, Answer answer);

  // Answers all who wait and all who come with `why`.  The first wins.
  void Cancel(absl::Status why);

 private:
  struct Waiting {
    int64_t step = 0;
    Answer answer;
  };

  absl::Mutex mutex_;
  StepGate gate_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  // By stage and replica.
  std::map<std::pair<int, int>, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

// A GateClient in the process of the first stage.  The gate is shared by the
// workers of a test, and by the data plane that answers remote stages.
std::unique_ptr<GateClient> MakeLocalGateClient(
    std::shared_ptr<SharedStepGate> gate);

}  // namespace paceline
