// A member's exchange in a job that trains by gossip: it has partners instead
// of servers, and no common result.
//
// For kPart a member's compute thread updates its own parameters and calls
// Meet().  For kMeet it averages them with the partner's, if there are any;
// then the step is over.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/round/view.h"
#include "worker/rounds/gossip_driver.h"
#include "worker/rounds/group_exchange.h"
#include "worker/rounds/parts/round_transport.h"

namespace paceline {

// Thread-safe; the methods of the compute thread are for one thread.  Has a
// thread of its own, "rounds".
class GossipExchange final : public DriverExchange<GossipDriver> {
 public:
  // clock and observer outlive this.
  GossipExchange(RoundExchangeOptions options, const Clock& clock,
                 RoundObserver& observer);
  ~GossipExchange() override;

  // GroupExchange.
  absl::Status Start(RoundTransport& transport) override;
  void Stop(absl::Status why = Cancelled("the run has ended")) override;

  // --- Compute thread ---

  // Memory for OwnParameters::payload.
  std::shared_ptr<RoundPayload> MakeBlock() { return shape_.Make(0, pool_); }
  // Offers the parameters to the partner; the kMeet of that step follows.
  void Meet(OwnParameters own);

  // RoundSink.
  absl::StatusOr<std::shared_ptr<RoundPayload>> OnPayload(
      const MemberId& from, const PayloadKey& key, size_t bytes) override;

 private:
  absl::Status CheckPayload(const MemberId& from, const PayloadKey& key,
                            size_t bytes) const;
};

}  // namespace paceline
