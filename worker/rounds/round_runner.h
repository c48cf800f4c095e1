// The compute thread of a member of a round group: a step's part, the group's
// result, the next step.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/rounds/faults.h"
#include "worker/rounds/member_runner.h"
#include "worker/rounds/round_exchange.h"

namespace paceline {

// Lives on the compute thread.
class RoundRunner final : public MemberRunner {
 public:
  // `exchange` outlives this.
  RoundRunner(MemberOptions options, const MemberParts& parts,
              RoundExchange& exchange)
      : MemberRunner(std::move(options), parts, exchange),
        exchange_(exchange) {}

 private:
  // A micro-batch of the test set that a rule may trust.
  struct Trusted {
    BatchInfo batch;
    int micro_batch = 0;
    TensorList input;
  };

  // MemberRunner.
  absl::Status Begin() override;
  absl::Status Take(RoundTurn& turn) override;
  void Abandon() override;
  void OnRestored(uint64_t state_hash) override;
  void OnIdle() override {
    TellState();
    PrepareNext();
  }

  absl::Status ComputePart(const RoundTurn& turn);
  // False: the part is of no use any more.
  absl::StatusOr<bool> ComputeMicroBatches(const RoundTurn& turn,
                                           const BatchInfo& batch,
                                           const std::vector<int>& own,
                                           const StepFaults& faults);
  absl::Status BeginPart(const RoundTurn& turn, const StepFaults& faults);
  absl::Status Apply(const RoundTurn& turn);
  void TellState();
  void PrepareNext();
  void LogApplied() const;
  absl::Status HandOver(const RoundTurn& turn);
  absl::StatusOr<StepVerdict> Update(const RoundTurn& turn,
                                     const BatchInfo& batch);
  absl::Status LoadTrusted();
  absl::StatusOr<double> TrustedLoss(const RoundTurn& turn);
  absl::StatusOr<double> MeanTrustedLoss();

  RoundExchange& exchange_;
  bool open_ = false;  // the engine holds an open step
  // The part after the one that was handed in last, until its data begin to
  // load.
  std::optional<RoundTurn> next_part_;
  // The round that was applied last, until its state's hash has been told.
  std::optional<RoundTurn> untold_;
  std::vector<Trusted> trusted_;
};

}  // namespace paceline
