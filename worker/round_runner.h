// The compute thread of a member of a round group: a step's part, the group's
// result, the next step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/cluster/run_report.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "worker/batch_source.h"
#include "worker/cancel_token.h"
#include "worker/faults.h"
#include "worker/member_compute.h"
#include "worker/round_desk.h"
#include "worker/stage_engine.h"
#include "worker/stage_runner.h"
#include "worker/time_meter.h"

namespace paceline {

// What an engine of a round group calls after each layer: it is made before
// its runner.
struct LayerHook {
  std::function<void(const LayerDone&)> call = nullptr;
};

struct RoundRunnerOptions {
  JobSpec spec;
  ModelDescription model;
  MemberId self;
  FaultPlan faults = {};
};

// All outlive the runner.
struct RoundRunnerParts {
  StageEngine& engine;  // with flat_gradient; calls `hook` for on_layer
  LayerHook& hook;
  BatchSource& source;
  RoundDesk& desk;
  FaultActions& fault_actions;
  TimeMeter& time;
  const Clock& clock;
  RunObserver& observer;
  const CancelToken& cancel;
  // All steps are applied here; uploads: and this worker hands the weights
  // over next.
  std::function<void(bool uploads)> on_done;
  std::function<absl::Status()> upload;
};

// Lives on the compute thread.
class RoundRunner {
 public:
  RoundRunner(RoundRunnerOptions options, const RoundRunnerParts& parts);

  // Takes turns until the desk is stopped, whose error it returns, or the
  // engine, the data or the upload has one.
  absl::Status Run();

 private:
  // A micro-batch of the test set that a rule may trust.
  struct Trusted {
    BatchInfo batch;
    int micro_batch = 0;
    TensorList input;
  };

  absl::Status Take(RoundTurn& turn);
  absl::Status ComputePart(const RoundTurn& turn);
  // False: the part is of no use any more.
  absl::StatusOr<bool> ComputeMicroBatches(const RoundTurn& turn,
                                           const BatchInfo& batch,
                                           const std::vector<int>& own,
                                           const StepFaults& faults);
  absl::Status BeginPart(const RoundTurn& turn, const StepFaults& faults);
  absl::Status Apply(const RoundTurn& turn);
  void LogApplied(const RoundTurn& turn) const;
  absl::Status HandOver(const RoundTurn& turn);
  absl::StatusOr<StepVerdict> Update(const RoundTurn& turn,
                                     const BatchInfo& batch);
  absl::Status Restore(const RoundTurn& turn);
  absl::Status Copy();
  absl::Status LoadTrusted();
  absl::StatusOr<double> TrustedLoss(const RoundTurn& turn);
  absl::StatusOr<double> MeanTrustedLoss();
  absl::Status Abandon();

  const RoundRunnerOptions options_;
  const RoundRunnerParts parts_;
  const int64_t total_steps_;
  MemberCompute compute_;

  int64_t applied_ = 0;
  uint64_t state_hash_ = 0;
  bool open_ = false;  // the engine has something of a step
  std::vector<Trusted> trusted_;
};

}  // namespace paceline
