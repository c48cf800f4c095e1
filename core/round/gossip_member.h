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
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/round/deadline.h"
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

struct GossipOptions {
  int64_t attempt = 0;
  uint64_t seed = 0;  // of the pairings; equal on all members
  // Each member learns this of its partners.  It waits for a partner that is
  // always slower.  It does not wait for one that is slower now than ever
  // before.
  PartnerWaitPolicy partner_wait;
  // A message without an answer is sent again; everything is idempotent.
  absl::Duration retry_period = absl::Milliseconds(100);
};

// The end of a member's exchange of a step.
enum class GossipOutcome : uint8_t {
  kAveraged,
  kAlone,         // the step has no partner for it
  kLate,          // the partner did not come in time
  kLost,          // the partner is dead, or no member any more
  kNotFinite,     // NaN or infinity in the partner's parameters
  kWrongBytes,    // they were not those that it had named
  kRefused,       // the partner found one of these in this member's
  kOtherPartner,  // the partner has another view, and meets somebody else
  kPast,          // the partner is done with that step
};

// --- What the caller has to do, in this order; some are round_member.h's -----

// The exchange of `step` is over, once a step: average with the parameters of
// `partner` that have this hash, or (any other outcome) go on without.
struct EndExchange {
  int64_t step = 0;
  MemberId partner;  // unassigned: there was none
  GossipOutcome outcome = GossipOutcome::kAlone;
  uint64_t hash = 0;  // kAveraged: of the partner's parameters
  absl::Duration waited;
};

// With a SendMessage of a ParameterOffer go this member's parameters.
using GossipAction = std::variant<SendMessage, EndExchange, TakeCopy, SendCopy>;
using GossipActions = std::vector<GossipAction>;

// The machine (state, event, now) -> (state, actions).  Any message may be
// lost, repeated, late or out of order.  Parameters are known by their hashes.
// Thread-compatible.
class GossipMember {
 public:
  // has_state: it begins with the job, after `next` steps; else it listens, and
  // takes a donor's state (Join) before anything else.
  GossipMember(const GossipOptions& options, MemberId self, int64_t next,
               bool has_state);

  // From the coordinator; older ones change nothing.  Its first view may take
  // it to a later step: where the group is.
  void OnView(const View& view, Instant now, GossipActions& actions);
  // bytes: what was found in those that came with a ParameterOffer; kTaken:
  // nothing wrong; kBehind: they were not kept.
  void OnMessage(const RoundMessage& message, ParameterAnswer::Verdict bytes,
                 Instant now, GossipActions& actions);
  // Its own parameters after the update of `step`, the next one: now it meets
  // its partner.  Of another step: ignored.
  //   hash  of the parameters; 0: there are none to be had
  void OnParameters(int64_t step, uint64_t hash, Instant now,
                    GossipActions& actions);
  // dead: no process listens at the peer's address, or another one does.
  void OnLink(const MemberId& peer, bool dead, Instant now,
              GossipActions& actions);
  // Every retry period, or when DueAt() says.
  void OnTick(Instant now, GossipActions& actions);
  // Becomes a listener that asks `donor` for its state.
  void Join(const MemberId& donor, Instant now, GossipActions& actions);

  // When the exchange that is open is given up; nothing: none is.
  std::optional<Instant> DueAt() const;

  const MemberId& self() const { return self_; }
  const std::optional<View>& view() const { return view_; }
  int64_t next() const { return next_; }  // steps that are over
  bool has_state() const { return has_state_; }
  bool is_member() const;  // of the present view
  // Its parameters of step next() are awaited.
  bool needs_part() const {
    return is_member() && has_state_ && !exchange_.has_value();
  }
  // Whether an offer of that step may still be averaged here: its bytes are
  // worth looking at.
  bool Wants(int64_t step) const { return step >= next_; }
  // How long the slowest partner would be waited for.
  absl::Duration longest_wait() const;

 private:
  // One call from outside: when it came, and where what it leads to goes.
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
    std::optional<uint64_t> theirs;  // hash; they are here, and good
    bool taken = false;              // the partner has this member's
  };
  // An offer of a step that this member has not come to.
  struct Early {
    ParameterOffer offer;
    Verdict bytes = Verdict::kTaken;
  };
  // With one partner: the last averaging, and the last one given up.
  struct Memory {
    ParameterOffer averaged{-1, 0};  // the partner's
    int64_t gave_up = -1;            // step
    Instant began;                   // of that one
  };

  void Send(const MemberId& to, Body body, const Call& call) const;
  void Reply(const MemberId& to, const ParameterOffer& offer, Verdict verdict,
             const Call& call) const;
  void Offer(const Call& call);
  void OnOffer(const MemberId& from, const ParameterOffer& offer, Verdict bytes,
               const Call& call);
  void OnPastOffer(const MemberId& from, const ParameterOffer& offer,
                   const Call& call);
  // The partner's words in the open exchange.
  void TakeOffer(const ParameterOffer& offer, Verdict bytes, const Call& call);
  void OnAnswer(const MemberId& from, const ParameterAnswer& answer,
                const Call& call);
  void OnCopy(const MemberId& from, const Copy& copy, const Call& call);
  // Answers the members that wait for a step that this one has reached or
  // passed.
  void AnswerEarly(const Call& call);
  void TryAverage(const Call& call);
  void End(GossipOutcome outcome, const Call& call);
  absl::Duration PatienceWith(const MemberId& partner) const;
  void Learn(const MemberId& partner, absl::Duration wait);

  const GossipOptions options_;
  const MemberId self_;

  std::optional<View> view_;
  MemberId donor_;  // while it has no state
  bool joined_ = false;
  bool has_state_;
  int64_t next_;
  std::optional<Exchange> exchange_;  // of next_
  // By whose it is and its step: of refused ones there may be some.
  std::map<std::pair<MemberId, int64_t>, Early> early_;
  std::map<MemberId, Memory> memory_;
  std::map<MemberId, PartnerWait> waits_;
  std::set<MemberId> dead_;
  Instant asked_;  // for a copy
};

}  // namespace paceline
