// GossipDriver runs the state machine of a gossip job
// (core/round/gossip_member.h): passes messages in, checks parameters before
// they are averaged, and carries out actions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/cluster/eviction.h"
#include "core/round/gossip_member.h"
#include "worker/rounds/group_driver.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {

// A member's parameters after its own update of a step, as it offers them.
struct OwnParameters {
  int64_t step = 0;
  uint64_t hash = 0;                      // as in its offer; 0: it has none
  std::shared_ptr<RoundPayload> payload;  // complete
  bool duplicates = false;  // a fault on purpose: it sends each offer twice
};

// The part of a gossip member's report that should not wait for a heartbeat.
struct GossipTold {
  ViewId view;
  bool is_member = false;
  bool has_state = false;

  friend bool operator==(const GossipTold&, const GossipTold&) = default;
};

// Lives on the thread "rounds".
class GossipDriver final
    : public GroupDriver<GossipMember, GossipActions, GossipTold> {
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

  MemberReport Report(Instant now) const;
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
  void OnWorkers(const std::set<MemberId>& there) override;
  void OnPeer(const MemberId& peer, bool up, Instant now) override;
  void Give(const RoundMessage& message) override;
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

}  // namespace paceline
