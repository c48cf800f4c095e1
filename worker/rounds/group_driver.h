// GroupDriver is what a member's driver has in common in rounds and in gossip:
// it follows the group's views, finds a donor while it listens, offers its
// state to joiners, and ticks the state machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/cluster/eviction.h"
#include "core/cluster/run_order.h"
#include "core/job/aggregation.h"
#include "core/job/spec/job_spec.h"
#include "core/obs/log.h"
#include "core/round/message.h"
#include "core/round/round_member.h"
#include "core/round/view.h"
#include "core/transfer/checksum.h"
#include "worker/pipeline/piece_store.h"
#include "worker/rounds/parts/round_event_log.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_store.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/rounds/parts/round_turn.h"
#include "worker/rounds/peer_links.h"

namespace paceline {

// This many results may wait for a slow compute thread, however large they are:
// as many are kept for late members anyway, and the planner counts these.
inline constexpr int64_t kLeastUnapplied = kKeptResults;

// How many steps ahead of this member the parts and results of others may be.
// Bytes of later steps are dropped, and come again when this member is far
// enough.  A joiner that knows that it lags by more is not level.
inline constexpr int64_t kStepsAhead = 4;

struct RoundExchangeOptions {
  int64_t attempt = 0;
  MemberId self;
  AggregationSpec aggregation;  // of the job; not mode none
  size_t values = 0;            // float32 of the gradient
  // The most bytes of results that may wait for the compute thread.  With more,
  // and with more than kLeastUnapplied results, this member holds no further
  // result: the others wait for it.
  size_t unapplied_bytes = size_t{256} << 20;
  int64_t total_steps = 0;  // no part of a later step is asked for
  // Steps that the state has in it.
  int64_t next = 0;
  // Not 0.  A member that is in no view yet fetches the group's state anyway.
  uint64_t state_hash = 1;
  uint64_t seed = 0;  // gossip: of the pairings
  // zeno without gamma: the learning rate of a step.
  std::function<double(int64_t step)> learning_rate = nullptr;
  // For faults on purpose: this member, as server of `step`, has another
  // member's part ("gathering"), knows that another member holds its result
  // ("spreading"), or is about to commit ("committing").  Called on the thread
  // "rounds"; may be null.
  std::function<void(int64_t step, absl::string_view phase)> on_serving =
      nullptr;
  absl::Duration retry_period = absl::Milliseconds(100);
  absl::Duration lease = absl::Seconds(3);
};

// Gets events for the coordinator and the metrics.  Called on the thread
// "rounds"; quick.
class RoundObserver {
 public:
  virtual ~RoundObserver() = default;
  virtual void OnRound(const v1::RoundRecord& record) = 0;
  // The report has changed, and should not wait for the next heartbeat.
  virtual void OnMemberChanged() = 0;
};

// All outlive the driver.
struct GroupDriverParts {
  RoundTransport& transport;
  RoundStore& store;
  RoundTurns& turns;
  RoundObserver& observer;
  const Clock& clock;
};

// Lives on the thread "rounds".  Member: the state machine, RoundMember or
// GossipMember.  Told: the part of the report that should not wait for a
// heartbeat.
template <typename Member, typename Actions, typename Told>
class GroupDriver {
 public:
  virtual ~GroupDriver() = default;

  void OnGroup(const GroupOrder& group) {
    group_ = group;
    parts_.transport.SetPeers(group.workers);
    links_.Retain(group.workers);
    std::set<MemberId> there;
    for (const GroupWorker& worker : group.workers) there.insert(worker.id);
    const auto is_gone = [&there](const MemberId& id) {
      return there.count(id) == 0;
    };
    std::erase_if(wanted_, is_gone);
    DropFetching(is_gone);
    std::erase_if(heard_, [&there](const auto& each) {
      return there.count(each.first) == 0;
    });
    const bool counted = Contains(group.view, options_.self);
    if (!member_.has_value()) Begin(counted);
    OnWorkers(there);
    if (counted) {
      AdoptView(group.view);
    } else if (!member_->view().has_value()) {
      FollowDonor();
    } else if (member_->view()->id < group.view.id) {
      parts_.turns.End(Aborted(
          "view ", ViewText(group.view.id),
          " goes on without this member, which was one until view ",
          ViewText(member_->view()->id),
          ": only another process of this worker can become one again"));
    }
    Settle();
  }

  void OnLink(const MemberId& peer, bool up, bool refused) {
    const Instant now = parts_.clock.Now();
    links_.OnLink(peer, up, refused, now);
    report_changed_ = true;
    OnPeer(peer, up, now);
    if (member_.has_value() && !member_->view().has_value()) FollowDonor();
    Settle();
  }

  // The compute thread has answered a kOffer or a kFetch.
  void OnState(RoundTurn turn) {
    if (!member_.has_value()) return;
    if (turn.kind == RoundTurn::Kind::kFetch) return OnFetched(turn);
    offer_ = {turn.step, HashAfter(turn.step), turn.state_hash};
    offered_ = std::move(turn.state);
    for (const MemberId& to : std::exchange(wanted_, {})) {
      SendOffer(to);
      Log(LogLevel::kInfo, "offers a joiner the state",
          {{"worker", to.worker.value}, {"step", turn.step}});
    }
  }

  void OnTick() {
    ticked_ = parts_.clock.Now();
    if (!member_.has_value()) return;
    member_->OnTick(ticked_, actions_);
    Settle();
  }

  // The latest time for the next OnTick().
  Instant DueAt() const {
    const Instant tick = ticked_ + options_.retry_period;
    if (!member_.has_value()) return tick;
    return std::min(member_->DueAt().value_or(tick), tick);
  }

  // Whether the report has changed since the last call, and should not wait for
  // the next heartbeat.
  bool TakeChanged() { return std::exchange(changed_, false); }

 protected:
  // options outlives this.
  GroupDriver(const RoundExchangeOptions& options,
              const GroupDriverParts& parts)
      : options_(options), parts_(parts), ticked_(parts.clock.Now()) {}

  // The first group has come: makes member_.  counted: it is in the first view.
  virtual void Begin(bool counted) = 0;
  // OnWorkers: the group has these processes.  OnNewView: the member is about
  // to adopt `view`.  OnPeer: the link to `peer` broke, or works again.
  virtual void OnWorkers(const std::set<MemberId>& /*there*/) {}
  virtual void OnNewView(const View& /*view*/, Instant /*now*/) {}
  virtual void OnPeer(const MemberId& peer, bool up, Instant now) = 0;
  // Passes an offer, whose state has come, to the state machine.
  virtual void Give(const RoundMessage& offer) = 0;
  // Carries out the actions of the state machine.
  virtual void Settle() = 0;
  // RoundResult::hash() of the last of these steps; 0: not known.
  virtual uint64_t HashAfter(int64_t /*steps*/) const { return 0; }
  virtual uint64_t LastHash() const { return 0; }
  virtual RoundStats& stats() = 0;

  RoundMessage Message(Body body) const {
    RoundMessage message;
    message.attempt = options_.attempt;
    if (member_->view().has_value()) message.view = member_->view()->id;
    message.from = options_.self;
    message.committed_through = member_->next();
    message.committed_hash = LastHash();
    message.body = std::move(body);
    return message;
  }

  void Refuse(const RoundMessage& message, absl::string_view why) {
    ++stats().refused_messages;
    Log(LogLevel::kWarn, "a message was refused",
        {{"worker", message.from.worker.value},
         {"message", MessageText(message)},
         {"why", why}});
  }

  // Has the compute thread fetch the state that `message` offers, unless it
  // fetches one already or has as many steps.
  void FetchState(const RoundMessage& message) {
    const auto& offer = std::get<StateOffer>(message.body);
    const RoundTurns::State known = parts_.turns.state();
    if (fetches_ || (known.has_state && offer.next <= known.next)) return;
    for (const GroupWorker& worker : group_.workers) {
      if (worker.id != message.from) continue;
      fetches_ = true;
      RoundTurn turn;
      turn.kind = RoundTurn::Kind::kFetch;
      turn.step = offer.next;
      turn.offer = message;
      turn.source = {{}, worker.id, worker.address};
      parts_.turns.Push(std::move(turn));
    }
  }

  // Hands the state that has come to the compute thread.
  void PushRestore(const TakeState& action) {
    RoundTurn turn;
    turn.kind = RoundTurn::Kind::kRestore;
    turn.step = action.next;
    turn.state = std::exchange(state_, {});
    turn.state_hash = action.state_hash;
    parts_.turns.Push(std::move(turn));
  }

  // A joiner gets the same offer again until it has that state, and while no
  // newer state exists, since it would fetch a new one from its first
  // byte.  Else the compute thread makes a new one.
  void Do(const OfferState& action) {
    if (!offered_.empty() &&
        (offer_.next == member_->next() || fetching_.count(action.to) > 0)) {
      return SendOffer(action.to);
    }
    const bool asked = !wanted_.empty();
    wanted_.insert(action.to);
    if (asked) return;
    RoundTurn turn;
    turn.kind = RoundTurn::Kind::kOffer;
    parts_.turns.Push(std::move(turn));
  }

  // These joiners fetch nothing any more.  The last one lets go of the state:
  // it is as large as the model and its optimizer.
  void DropFetching(const std::function<bool(const MemberId&)>& is_over) {
    std::erase_if(fetching_, is_over);
    if (fetching_.empty()) offered_.clear();
  }

  // Marks the report as changed, if `told` is new or report_changed_ is set.
  void Tell(const Told& told) {
    if (told == told_ && !report_changed_) return;
    told_ = told;
    report_changed_ = false;
    changed_ = true;
  }

  const RoundExchangeOptions& options_;
  const GroupDriverParts parts_;

  std::optional<Member> member_;  // from the first group on
  Actions actions_;
  GroupOrder group_;
  std::vector<PiecePtr> state_;        // of an offer that is being taken
  std::map<MemberId, int64_t> heard_;  // committed_through, newest
  StateOffer offer_;                   // of offered_
  std::vector<PiecePtr> offered_;      // empty: nobody fetches it
  PeerLinks links_;
  Told told_;
  bool report_changed_ = false;

 private:
  void SendOffer(const MemberId& to) {
    fetching_.insert(to);
    parts_.transport.Send(to, Message(offer_), {}, nullptr);
  }

  // The state that an offer names has come; none: it could not be fetched, and
  // the member asks again.
  void OnFetched(RoundTurn& turn) {
    fetches_ = false;
    const auto& offer = std::get<StateOffer>(turn.offer.body);
    if (turn.state.empty() || !IsGood(offer, turn.state)) return;
    state_ = std::move(turn.state);
    Give(turn.offer);
    Settle();
    state_.clear();  // left by an offer that is of no use any more
  }

  // Whether `state` is the one that `offer` names.
  bool IsGood(const StateOffer& offer, const std::vector<PiecePtr>& state) {
    Checksum checksum;
    for (const PiecePtr& piece : state) checksum.Update(piece->bytes());
    if (checksum.Digest() == offer.state_hash) return true;
    ++stats().refused_results;
    Log(LogLevel::kWarn, "a state was refused: another hash",
        {{"step", offer.next}});
    return false;
  }

  void AdoptView(const View& view) {
    if (member_->view().has_value() && view.id <= member_->view()->id) return;
    const Instant now = parts_.clock.Now();
    OnNewView(view, now);
    member_->OnView(view, now, actions_);
    Log(LogLevel::kInfo, "adopted a view",
        {{"view", ViewText(view.id)},
         {"members", view.members.size()},
         {"step", member_->next()}});
  }

  // The donor is the first member whose link is not known to be broken.
  void FollowDonor() {
    if (Contains(group_.view, donor_) && !links_.IsBroken(donor_)) return;
    for (const ViewMember& member : group_.view.members) {
      if (links_.IsBroken(member.id)) continue;
      donor_ = member.id;
      return member_->Join(donor_, parts_.clock.Now(), actions_);
    }
  }

  MemberId donor_;
  bool fetches_ = false;         // the compute thread has a kFetch
  std::set<MemberId> wanted_;    // wait for an offer
  std::set<MemberId> fetching_;  // have it
  Instant ticked_;
  bool changed_ = false;
};

}  // namespace paceline
