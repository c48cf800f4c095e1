// A member's exchange in a job that trains by gossip: it has partners instead
// of servers, and no common result.
//
// For kPart a member's compute thread updates its own parameters and calls
// Meet().  For kMeet it averages them with the partner's, if there are any;
// then the step is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/round/gossip_member.h"
#include "worker/rounds/group_exchange.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_transport.h"

namespace paceline {

// A member's parameters after its own update of a step, as it offers them.
struct OwnParameters {
  int64_t step = 0;
  uint64_t hash = 0;                      // as in its offer; 0: it has none
  std::shared_ptr<RoundPayload> payload;  // complete
  bool duplicates = false;  // a fault on purpose: it sends each offer twice
};

// Runs the state machine of a gossip job (core/round/gossip_member.h): passes
// messages in, checks parameters before they are averaged, and carries out
// actions.  Lives on the thread "rounds".
class GossipDriver final : public GroupDriver<GossipMember, GossipActions> {
 public:
  // options outlives this.
  GossipDriver(const RoundExchangeOptions& options,
               const GroupDriverParts& parts)
      : GroupDriver(options, parts) {}

  void OnMessage(const RoundMessage& message,
                 std::shared_ptr<RoundPayload> payload);
  void OnParameters(OwnParameters own);
  // Counts bytes that no member of this job would send; why: for people.
  void OnRefusedBytes(const MemberId& from, absl::string_view why);

  RoundStats Stats() const;

 private:
  using Verdict = ParameterAnswer::Verdict;

  // Parameters that are here, and the result of their check.
  struct Offered {
    uint64_t hash = 0;
    std::shared_ptr<RoundPayload> payload;
    Verdict bytes = Verdict::kTaken;
  };

  // GroupDriver.
  void Begin(bool counted) override;
  void OnWorkers(const std::function<bool(const MemberId&)>& is_gone) override;
  void OnPeer(const MemberId& peer, Instant now) override;
  void Give(const RoundMessage& message) override {
    member_->OnMessage(message, Verdict::kTaken, parts_.clock.Now(), actions_);
  }
  void Settle() override;
  RoundStats& stats() override { return stats_; }

  Verdict Look(const MemberId& from, const ParameterOffer& offer,
               const std::shared_ptr<RoundPayload>& payload);

  // Carry out the actions of the state machine.
  using GroupDriver::Do;
  void Do(const SendMessage& action);
  void Do(const EndExchange& action);
  void Do(const TakeState& action) { PushRestore(action); }
  void Count(const EndExchange& end);
  void Publish();

  OwnParameters own_;  // of the open exchange
  std::map<std::pair<MemberId, int64_t>, Offered> offered_;  // by sender, step
  RoundStats stats_;
};

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
