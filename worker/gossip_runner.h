// The compute thread of a member that gossips: its own update of a step, then
// the mean of its parameters and its partner's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "worker/faults.h"
#include "worker/gossip_desk.h"
#include "worker/member_compute.h"
#include "worker/round_runner.h"

namespace paceline {

// Lives on the compute thread.
class GossipRunner {
 public:
  // options: as of RoundRunner.  desk outlives this.
  //   on_done, upload  as in RoundRunnerParts
  GossipRunner(RoundRunnerOptions options, const MemberParts& parts,
               GossipDesk& desk, std::function<void(bool uploads)> on_done,
               std::function<absl::Status()> upload);

  // Takes turns until the desk is stopped, whose error it returns, or the
  // engine, the data or the upload has one.
  absl::Status Run();

 private:
  absl::Status Take(const RoundTurn& turn);
  absl::Status Train(const RoundTurn& turn);
  absl::Status ComputeShare(const std::vector<int>& own,
                            const StepFaults& faults);
  absl::StatusOr<StepVerdict> Update(const StepFaults& faults);
  absl::Status Offer(const StepFaults& faults);
  absl::Status Meet(const RoundTurn& turn);
  absl::Status Average(const std::shared_ptr<RoundPayload>& theirs);
  absl::Status Restore(const RoundTurn& turn);
  absl::Status Copy();
  absl::Status CopyIfAsked();

  const RoundRunnerOptions options_;
  const MemberParts parts_;
  GossipDesk& desk_;
  const std::function<void(bool)> on_done_;
  const std::function<absl::Status()> upload_;
  const int64_t total_steps_;
  MemberCompute compute_;

  int64_t trained_ = 0;  // steps whose own update is in the parameters
  bool meeting_ = false;
  // Of the step that is open.
  BatchInfo batch_;
  size_t share_ = 0;  // micro-batches
  StepVerdict verdict_;
};

}  // namespace paceline
