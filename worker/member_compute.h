// What the compute thread of a member does in every mode: micro-batches of a
// step, its share of the test set, copies of the state; and what it tells.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/optim/step_gate.h"
#include "core/round/view.h"
#include "worker/batch_source.h"
#include "worker/cancel_token.h"
#include "worker/faults.h"
#include "worker/round_payload.h"
#include "worker/stage_engine.h"
#include "worker/stage_runner.h"
#include "worker/time_meter.h"

namespace paceline {

// All outlive the compute.
struct MemberParts {
  StageEngine& engine;  // with flat_gradient
  BatchSource& source;
  FaultActions& fault_actions;
  TimeMeter& time;
  const Clock& clock;
  RunObserver& observer;
  const CancelToken& cancel;
};

// Lives on the compute thread.
class MemberCompute {
 public:
  // What else is to be done between two micro-batches.
  using Between = std::function<absl::Status()>;

  // spec and model outlive this.
  MemberCompute(const JobSpec& spec, const ModelDescription& model,
                const MemberParts& parts)
      : spec_(spec), model_(model), parts_(parts) {}

  // A step begins: kills, hangs, delays, as the faults say.
  absl::Status BeginStep(const StepFaults& faults, int64_t step);
  // Forward and backward of the next one that the source has prepared.
  // before_backward may be null.
  absl::Status ComputeMicroBatch(const BatchInfo& batch, int micro_batch,
                                 const StepFaults& faults,
                                 const std::function<void()>& before_backward);
  // Of the step so far.
  const LossSums& losses() const { return losses_; }

  // The step is done.  own: samples that count as this member's; all: as the
  // step's.
  void Tell(const StepVerdict& verdict, const BatchInfo& batch, int64_t own,
            int64_t all);
  // What comes next did not follow at once: no time of a step.
  void ForgetTime() { told_at_.reset(); }

  // Its share of the test set by the members of `view`, where one is due after
  // `steps` steps.
  absl::Status Evaluate(int64_t steps, const std::optional<View>& view,
                        const MemberId& self, const Between& between);

  absl::StatusOr<std::shared_ptr<RoundPayload>> CopyState();
  // The engine's own memory, in the order of the gradient.
  absl::StatusOr<std::vector<NamedTensor>> Trainable();

 private:
  void SayUnreadable();
  absl::Status EvaluateShare(const BatchInfo& batch,
                             const std::vector<int>& own,
                             const Between& between, LossSums& sums);

  const JobSpec& spec_;
  const ModelDescription& model_;
  const MemberParts parts_;

  LossSums losses_;
  StageTime stage_time_;
  std::optional<Instant> told_at_;
  int64_t unreadable_ = 0;  // samples, as was said
};

}  // namespace paceline
