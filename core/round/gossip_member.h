// GossipMember is a member of a job that trains by gossip.  After its own
// update of a step it meets one partner, and both go on with the mean of their
// parameters.  README.md has its table.
//
// It promises convergence, not equality: the members agree on no common result.
// No member waits for more than one partner, and an absent member costs only
// the exchanges with it.  Both partners average, or neither does.  There is one
// exception: the last message of one is lost until the other's time is over, or
// its sender dies.  No protocol between two members that can lose messages does
// better.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/round/message.h"
#include "core/round/round_member.h"
#include "core/round/view.h"

namespace paceline {

// Source: randomised pairwise averaging, Boyd et al. 2006 ("Randomized gossip
// algorithms"); with gradient steps between, as in AD-PSGD of Lian et al.
// 2018.  Here the pairs of a step are disjoint, and each step draws new ones,
// so that no member waits for two partners.  An averaging keeps the sum of all
// members' parameters, up to rounding.

// Disjoint pairs of `members`, which are sorted by id, drawn from (seed, step):
// the same on every member.  The first of a pair is the lower one; pairs are in
// the order of their first.  With an odd number of members one is left out.
// O(n log n).
std::vector<std::pair<MemberId, MemberId>> GossipPairs(
    const std::vector<MemberId>& members, uint64_t seed, int64_t step);

// Returns the partner of `self` in that step; nothing: `self` is left out, or
// is no member.
std::optional<MemberId> GossipPartner(const std::vector<MemberId>& members,
                                      uint64_t seed, int64_t step,
                                      const MemberId& self);

// The wait of a gossiping member for a partner: twice the time that nine
// meetings in ten took, so that one in ten may be far off.  A round's deadline,
// which tolerates one arrival in two that is far off, does not fit: waits
// spread from pair to pair.  A partner that is at once there three times in
// four, and late the fourth time since it had to wait itself, is healthy.
struct PartnerWaitPolicy {
  absl::Duration floor = absl::Milliseconds(200);
  // The wait before anything is known, and the longest one.
  absl::Duration ceiling = absl::Seconds(30);
  double factor = 2;
  double quantile = 0.9;
  int remembered = 64;  // meetings that count
};

// Adapts to the meetings with one partner.  Thread-compatible.
class PartnerWait {
 public:
  explicit PartnerWait(const PartnerWaitPolicy& policy) : policy_(policy) {}

  // A meeting took `wait`, even if this member gave it up before.
  void Add(absl::Duration wait);
  absl::Duration Get() const;

 private:
  const PartnerWaitPolicy policy_;
  std::deque<absl::Duration> waits_;  // oldest first
};

struct GossipOptions {
  int64_t attempt = 0;
  uint64_t seed = 0;  // of the pairings; equal on all members
  // Each member learns the wait for each partner.  It waits for a partner that
  // is always slower.  It does not wait for one that is slower now than ever
  // before.
  PartnerWaitPolicy partner_wait;
  // A message without an answer is sent again; everything is idempotent.
  absl::Duration retry_period = absl::Milliseconds(100);
};

// How a member's exchange of a step ends.
enum class GossipOutcome : uint8_t {
  kAveraged,
  kAlone,         // it has no partner in the step, or no parameters
  kLate,          // the partner did not come in time, or is far behind
  kLost,          // the partner is dead, or no member any more
  kNotFinite,     // NaN or infinity in the partner's parameters
  kWrongBytes,    // not the bytes that the partner's offer names
  kRefused,       // the partner found NaN or wrong bytes in this one's
  kOtherPartner,  // the partner has another view and another partner
  kPast,          // the partner is done with that step, or gives it up
};

// --- Actions for the caller, in this order; some are round_member.h's --------

// The exchange of `step` is over; comes once a step.  kAveraged: average with
// those parameters of `partner` that have this hash.  Else go on without.
struct EndExchange {
  int64_t step = 0;
  MemberId partner;  // unassigned: there was none
  GossipOutcome outcome = GossipOutcome::kAlone;
  uint64_t hash = 0;  // kAveraged: of the partner's parameters
  absl::Duration waited;
};

// A SendMessage with a ParameterOffer takes this member's parameters along.
using GossipAction =
    std::variant<SendMessage, EndExchange, TakeState, OfferState>;
using GossipActions = std::vector<GossipAction>;

// The machine (state, event, now) -> (state, actions).  Any message may be
// lost, repeated, late or out of order.  It knows parameters by their hashes.
// Thread-compatible.
class GossipMember {
 public:
  // has_state: it begins with the job, after `next` steps; else it listens, and
  // takes a donor's state (Join) before anything else.
  GossipMember(const GossipOptions& options, MemberId self, int64_t next,
               bool has_state);

  // A view from the coordinator; older ones change nothing.  The first view
  // with this member may move it on to the group's step.
  void OnView(const View& view, Instant now, GossipActions& actions);
  // bytes: the check of the bytes of a ParameterOffer; kTaken: nothing is
  // wrong; kBehind: they were not kept.
  void OnMessage(const RoundMessage& message, ParameterAnswer::Verdict bytes,
                 Instant now, GossipActions& actions);
  // This member's parameters after its update of `step`: it meets its partner
  // now.  Ignored if `step` is not the next one.
  //   hash  of the parameters; 0: there are none
  void OnParameters(int64_t step, uint64_t hash, Instant now,
                    GossipActions& actions);
  // dead: no process listens at the peer's address, or another one does.
  void OnLink(const MemberId& peer, bool dead, Instant now,
              GossipActions& actions);
  // Call it every retry period, and at DueAt().
  void OnTick(Instant now, GossipActions& actions);
  // Becomes a listener that asks `donor` for its state.
  void Join(const MemberId& donor, Instant now, GossipActions& actions);

  // A message of this member as it is now.
  RoundMessage Message(Body body) const;

  // When the open exchange is given up; nothing: none is open.
  std::optional<Instant> DueAt() const;

  const MemberId& self() const { return self_; }
  const std::optional<View>& view() const { return view_; }
  int64_t next() const { return next_; }  // steps that are over
  bool has_state() const { return has_state_; }
  // Whether the present view has it.
  bool is_member() const {
    return view_.has_value() && Contains(*view_, self_);
  }
  // Whether its parameters of step next() are awaited.
  bool needs_part() const {
    return is_member() && has_state_ && !exchange_.has_value();
  }
  // Whether an offer of that step may still be averaged here: its bytes need a
  // check.
  bool Wants(int64_t step) const { return step >= next_; }
  // How long this member would wait for the slowest partner.
  absl::Duration longest_wait() const;

 private:
  // One call from outside: its time, and the list for its actions.
  struct Call {
    Instant now;
    GossipActions& actions;
  };

  using Verdict = ParameterAnswer::Verdict;

  struct Exchange {
    int64_t step = 0;
    MemberId partner;
    uint64_t hash = 0;  // of this member's parameters
    Instant began;
    Instant repeated;
    std::optional<uint64_t> theirs;  // hash of its parameters, here and good
    bool taken = false;              // the partner has this member's
  };
  // An offer of a step that this member has not reached.
  struct Early {
    ParameterOffer offer;
    Verdict bytes = Verdict::kTaken;
  };
  // The last averaging with a partner, and the last late exchange with it.
  struct Memory {
    ParameterOffer averaged{-1, 0};  // the partner's
    int64_t gave_up = -1;            // step
    Instant began;                   // of that exchange
  };

  void Send(const MemberId& to, Body body, const Call& call) const {
    call.actions.push_back(SendMessage{to, Message(std::move(body))});
  }
  void Reply(const MemberId& to, const ParameterOffer& offer, Verdict verdict,
             const Call& call) const {
    Send(to, ParameterAnswer{offer.step, offer.hash, verdict}, call);
  }
  void Offer(const Call& call);
  void OnOffer(const MemberId& from, const ParameterOffer& offer, Verdict bytes,
               const Call& call);
  void OnPastOffer(const MemberId& from, const ParameterOffer& offer,
                   const Call& call);
  // Handles the partner's offer in the open exchange.
  void TakeOffer(const ParameterOffer& offer, Verdict bytes, const Call& call);
  void OnAnswer(const MemberId& from, const ParameterAnswer& answer,
                const Call& call);
  void OnState(const MemberId& from, const StateOffer& offer, const Call& call);
  // Answers the members that wait for a step that this one has reached or
  // passed.
  void AnswerEarly(const Call& call);
  void TryAverage(const Call& call);
  void End(GossipOutcome outcome, const Call& call);
  absl::Duration PatienceWith(const MemberId& partner) const;
  void Learn(const MemberId& partner, absl::Duration wait) {
    waits_.try_emplace(partner, options_.partner_wait).first->second.Add(wait);
  }

  const GossipOptions options_;
  const MemberId self_;

  std::optional<View> view_;
  MemberId donor_;  // while it has no state
  bool joined_ = false;
  bool has_state_;
  int64_t next_;
  std::optional<Exchange> exchange_;  // of next_
  // By sender and step; a refused sender may have several.
  std::map<std::pair<MemberId, int64_t>, Early> early_;
  std::map<MemberId, Memory> memory_;
  std::map<MemberId, PartnerWait> waits_;
  std::set<MemberId> dead_;
  Instant asked_;  // for a state
};

}  // namespace paceline
