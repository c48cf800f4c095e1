// The compute thread of a member that gossips: its own update of a step, then
// the mean of its parameters and its partner's.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/rounds/faults.h"
#include "worker/rounds/gossip_exchange.h"
#include "worker/rounds/member_runner.h"

namespace paceline {

// Lives on the compute thread.
class GossipRunner final : public MemberRunner {
 public:
  // exchange outlives this.
  GossipRunner(MemberOptions options, const MemberParts& parts,
               GossipExchange& exchange)
      : MemberRunner(std::move(options), parts, exchange),
        exchange_(exchange) {}

 private:
  // MemberRunner.
  absl::Status Take(RoundTurn& turn) override;
  absl::Duration longest_wait() const override;
  void OfferState(RoundTurn turn) override;

  absl::Status Train(const RoundTurn& turn);
  absl::Status ComputeShare(const std::vector<int>& own,
                            const StepFaults& faults);
  absl::StatusOr<StepVerdict> Update(const StepFaults& faults);
  absl::Status Offer(const StepFaults& faults);
  absl::Status Meet(const RoundTurn& turn);
  absl::Status Average(const std::shared_ptr<RoundPayload>& theirs);

  GossipExchange& exchange_;
  bool meeting_ = false;
  std::optional<RoundTurn> offer_;  // until it has met
  // The batch of the step that is open.
  BatchInfo batch_;
  size_t share_ = 0;  // micro-batches
  StepVerdict verdict_;
};

}  // namespace paceline
