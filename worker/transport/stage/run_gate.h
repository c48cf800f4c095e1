// The step gate of one run: this worker's access to it and, on the worker that
// holds the first stage, the gate itself.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/pipeline/link.h"
#include "worker/pipeline/shared_step_gate.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// Thread-safe.  Shared by the run and, while it is open, the plane.
class RunGate final : public GateClient {
 public:
  RunGate(const RunWiring& wiring, std::shared_ptr<PlaneShared> shared);

  bool holds_first_stage() const { return first_.worker == self_; }

  // As DataPlane::OpenGate.
  absl::Status Open(const GateOptions& options);

  // Takes a report from another worker.
  // Errors: FailedPrecondition  not open yet
  //         InvalidArgument     this worker does not hold the first stage
  //         else as SharedStepGate::Report
  void Report(const StepReport& report, SharedStepGate::Answer answer);

  // GateClient.  After Cancel() other stages may still ask.
  absl::StatusOr<StepVerdict> Decide(
      const std::vector<StepReport>& reports) override;
  void Cancel(absl::Status why) override;
  std::optional<BrokenLink> broken() const override;
  // As Cancel(), and other stages get no answers any more.
  void Close();

 private:
  class Asking;

  std::shared_ptr<SharedStepGate> gate() {
    absl::MutexLock lock(&mutex_);
    return gate_;
  }

  // Constant after construction.
  const Fence fence_;
  const WorkerId self_;
  const WorkerAddress first_;        // of the worker that holds stage 0
  const std::vector<int> replicas_;  // [stages]
  const std::shared_ptr<PlaneShared> shared_;

  // Decide() waits here for other workers; null: this worker holds the first
  // stage.
  const std::shared_ptr<Asking> asking_;

  absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<SharedStepGate> gate_ ABSL_GUARDED_BY(mutex_);
  // Decide() waits here on the first stage's worker; null before Open().
  std::shared_ptr<GateClient> local_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
