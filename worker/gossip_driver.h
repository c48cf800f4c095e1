// Drives the state machine of a gossip job (core/round/gossip_member.h): gives
// it what comes, looks at parameters before they are averaged, does what it
// says.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/cluster/run_order.h"
#include "core/cluster/run_report.h"
#include "core/round/gossip_member.h"
#include "worker/gossip_store.h"
#include "worker/group_door.h"
#include "worker/peer_links.h"
#include "worker/round_driver.h"
#include "worker/round_payload.h"
#include "worker/round_transport.h"
#include "worker/round_turn.h"
#include "worker/state_copies.h"

namespace paceline {

// A member's parameters after its own update of a step, as it offers them.
struct OwnParameters {
  int64_t step = 0;
  uint64_t hash = 0;                      // as it names them; 0: it has none
  std::shared_ptr<RoundPayload> payload;  // complete
  bool duplicates = false;  // a fault on purpose: everything is said twice
};

// All outlive the driver.
struct GossipDriverParts {
  RoundTransport& transport;
  GossipStore& store;
  RoundTurns& turns;
  RoundObserver& observer;
  const Clock& clock;
};

// Lives on the thread "rounds".
class GossipDriver {
 public:
  // options outlives this.
  GossipDriver(const RoundDeskOptions& options, const GossipDriverParts& parts);

  void OnGroup(const GroupOrder& group);
  void OnMessage(const RoundMessage& message,
                 std::shared_ptr<RoundPayload> payload);
  void OnParameters(OwnParameters own);
  // Bytes that no member of this job would send; why: for people.
  void OnRefusedBytes(const MemberId& from, absl::string_view why);
  void OnLink(const MemberId& peer, bool up, bool refused);
  void OnStateCopied(int64_t next, uint64_t state_hash,
                     std::shared_ptr<RoundPayload> state);
  void OnTick();

  // When OnTick() is due, at the latest.
  Instant DueAt() const;
  MemberReport Report(Instant now) const;
  RoundStats Stats() const;
  // Whether the report says something since the last call that should not wait
  // for the next heartbeat.
  bool TakeChanged() { return std::exchange(changed_, false); }

 private:
  using Verdict = ParameterAnswer::Verdict;

  // Parameters that are here, and what was found in them.
  struct Offered {
    uint64_t hash = 0;
    std::shared_ptr<RoundPayload> payload;
    Verdict bytes = Verdict::kTaken;
  };

  void AdoptView(const View& view);
  void FollowDonor();
  Verdict Look(const MemberId& from, const ParameterOffer& offer,
               const std::shared_ptr<RoundPayload>& payload);
  bool IsGoodCopy(const RoundMessage& message, const Copy& copy,
                  const std::shared_ptr<RoundPayload>& payload);
  void Refuse(const RoundMessage& message, absl::string_view why);

  // What the state machine wants done.
  void Settle();
  void Do(const SendMessage& action);
  void Do(const EndExchange& action);
  void Do(const TakeCopy& action);
  void Do(const SendCopy& action);
  void Count(const EndExchange& end);
  void Publish();

  const RoundDeskOptions& options_;
  const GossipDriverParts parts_;

  // From the first group on: whether it is a member from the beginning.
  std::optional<GossipMember> member_;
  GossipActions actions_;
  GroupOrder group_;
  MemberId donor_;
  OwnParameters own_;  // of the open exchange
  std::map<std::pair<MemberId, int64_t>, Offered> offered_;  // by step
  std::shared_ptr<RoundPayload> state_;  // of a Copy that is being taken
  std::map<MemberId, int64_t> heard_;    // steps that a peer is done with
  StateCopies copies_;
  PeerLinks links_;
  RoundStats stats_;
  Instant ticked_;
  // What TakeChanged() was last true for.
  struct Told {
    ViewId view;
    bool is_member = false;
    bool has_state = false;

    friend bool operator==(const Told&, const Told&) = default;
  };
  Told told_;
  bool report_changed_ = false;
  bool changed_ = false;
};

}  // namespace paceline
