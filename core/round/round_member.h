// RoundMember hands its part in, serves shards when its turn comes, holds and
// applies results, and levels views.  README.md has its table.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/round/message.h"
#include "core/round/round_roles.h"

namespace paceline {

struct RoundOptions {
  int64_t attempt = 0;
  int shards = 1;
  ServerMode mode = ServerMode::kRolling;
  int min_parts = 1;  // usable ones, at least 1; fewer: the round is void
  DeadlinePolicy deadline;
  // A message without an answer is sent again; everything is idempotent.
  absl::Duration retry_period = absl::Milliseconds(100);
  // A member that owes an answer for this long is reported.
  absl::Duration lease = absl::Seconds(3);
  int kept_results = 4;  // committed ones, for members that lack them
};

// --- Actions for the caller, in this order ----------------------------------

// Send this to one member, with its bytes: the shard of a PartOffer, the sum of
// a Spread or a whole result.  May get lost.
struct SendMessage {
  MemberId to;
  RoundMessage message;
};
// Sum these parts of the shard by the job's rule, then call OnAggregated.
struct Aggregate {
  ViewId view;
  int64_t step = 0;
  int shard = 0;
  std::vector<Contributor> contributors;  // by id
};
// Apply this final result.  Steps come in order, each once; a void result
// changes only the step's number.  Abandon a gradient that is still being
// computed for this step.
struct Apply {
  RoundResult result;
};
// Tell the coordinator: this member owes an answer for a lease.
struct Suspect {
  MemberId member;
};
// Tell the coordinator: states differ that must be equal.  No round commits in
// this view from now on; a view without the minority goes on.
struct ReportMismatch {
  int64_t step = 0;
  std::map<MemberId, uint64_t> state_hashes;
};
// Take the state over that a StateOffer named: it has `next` steps in it.
struct TakeState {
  MemberId from;
  int64_t next = 0;
  uint64_t state_hash = 0;
};
// Offer the asking joiner the state as it is now.
struct OfferState {
  MemberId to;
};

// `struct`: rule.h has a function of that name.
using RoundAction = std::variant<SendMessage, struct Aggregate, Apply, Suspect,
                                 ReportMismatch, TakeState, OfferState>;
using RoundActions = std::vector<RoundAction>;

// The machine (state, event, now) -> (state, actions).  Any message may be
// lost, repeated, late or out of order; parts and results are known here by
// their hashes only.  Thread-compatible.
class RoundMember {
 public:
  enum class Phase : uint8_t {
    kListening,  // in no view: takes committed results, does nothing else
    kLevelling,  // has adopted a view that is not level yet
    kRunning,
  };

  // next: steps that its state has in it.  A joiner asks a donor for its state
  // (Join) before anything else.
  RoundMember(const RoundOptions& options, MemberId self, int64_t next,
              uint64_t state_hash);
  virtual ~RoundMember() = default;

  // A view of this group, from the coordinator.  Older ones change nothing.
  // The member adopts it before it answers anything.
  void OnView(const View& view, Instant now, RoundActions& actions);
  // The state that a StateOffer names has come before the offer does.
  void OnMessage(const RoundMessage& message, Instant now,
                 RoundActions& actions) {
    if (message.from != self_) Handle(message, {now, actions});
  }
  // This member's gradient of the next step, one offer a shard; samples 0:
  // nothing is usable.  Offers of another step are ignored.
  void OnPart(const std::vector<PartOffer>& shards, Instant now,
              RoundActions& actions);
  // The answer to Aggregate.  divisor: RuleVerdict's; 0: the rule could make
  // nothing of these parts, and the round is void.
  void OnAggregated(const struct Aggregate& request, uint64_t hash,
                    int64_t divisor, Instant now, RoundActions& actions);
  // The hash of the state after `steps` steps, as soon as it is known.
  void OnState(int64_t steps, uint64_t hash);
  // Call it every retry period, and at DueAt().
  void OnTick(Instant now, RoundActions& actions);
  // Becomes a listener that follows `donor`.
  void Join(const MemberId& donor, Instant now, RoundActions& actions);

  // A message of this member as it is now.
  RoundMessage Message(Body body) const;

  // When a round that this member serves can close without further messages;
  // nothing: none can.
  std::optional<Instant> DueAt() const;

  Phase phase() const { return phase_; }
  const MemberId& self() const { return self_; }
  const std::optional<View>& view() const { return view_; }
  int64_t next() const { return next_; }  // steps applied
  const std::optional<RoundResult>& held() const { return held_; }
  // RoundResult::hash() of the last result applied; 0: none was.
  uint64_t last_hash() const { return last_hash_; }
  // A step of a level view has counted this member, so it is no joiner any
  // more.  A level view alone is not enough: steps that do not count the member
  // commit without it.
  bool has_taken_part() const { return has_taken_part_ || takes_part(); }
  // A joiner did not begin with the group and has not taken part since.
  bool is_joiner() const { return !began_ && !has_taken_part(); }
  // Whether its part for the next step is awaited.
  bool needs_part() const {
    return phase_ != Phase::kListening && is_counted() && part_.empty();
  }
  // The members whose results it lacks after its own work.  They may wait for
  // others themselves: they owe an answer only if the link to them is broken.
  std::vector<MemberId> Awaited() const;
  uint64_t state_hash() const { return state_hash_; }
  int64_t state_steps() const { return state_steps_; }
  // The longest wait after the first part in the last round that it served.
  absl::Duration deadline() const { return deadline_in_force_; }

 protected:
  // Virtual for the simulation's flaws: whether `view` is to be adopted, and
  // the answer to its leveller.
  virtual bool IsNews(const View& view) const {
    return !view_.has_value() || view.id > view_->id;
  }
  virtual Answer OwnAnswer() const { return {next_, last_hash_, held_}; }

 private:
  // For members whose state comes some steps later than others'.
  static constexpr size_t kMostStates = 8;

  // One call from outside: its time, and the list for its actions.
  struct Call {
    Instant now;
    RoundActions& actions;
  };

  // Sends the message, or handles it at once if it is for this member.
  void Send(const MemberId& to, Body body, const Call& call);
  void SendToAll(const Body& body, const Call& call);

  void Handle(const RoundMessage& message, const Call& call);
  void On(const MemberId& from, const PartOffer& offer, const Call& call);
  void On(const MemberId& from, const Want& want, const Call& call);
  void On(const MemberId& from, const Spread& spread, const Call& call);
  void On(const MemberId& from, const Hold& hold, const Call& call);
  void On(const MemberId& from, const Commit& commit, const Call& call);
  void On(const MemberId& from, const Committed& committed, const Call& call);
  void On(const MemberId& from, const TooOld& old, const Call& call);
  void On(const MemberId& from, const Answer& answer, const Call& call);
  void On(const MemberId& from, const Fetch& fetch, const Call& call);
  void On(const MemberId& from, const Fetched& fetched, const Call& call);
  void On(const MemberId& from, const Level& level, const Call& call);
  void On(const MemberId&, const LevelDone&, const Call&) {}
  // Rounds ignore messages of gossip.
  void On(const MemberId&, const ParameterOffer&, const Call&) {}
  void On(const MemberId&, const ParameterAnswer&, const Call&) {}
  void On(const MemberId& from, const StateRequest& request, const Call& call);
  void On(const MemberId& from, const StateOffer& offer, const Call& call);

  // Member.
  bool is_counted() const;  // in the next step
  // A joiner is behind while it lacks steps that the group had applied when it
  // became level: it takes their results, and neither serves nor contributes.
  bool is_behind() const { return next_ < level_at_; }
  bool takes_part() const { return phase_ == Phase::kRunning && is_counted(); }
  bool MayTake(const RoundMessage& message) const;
  void TakeProof(int64_t committed_through, uint64_t committed_hash,
                 const Call& call);
  // Whether held_ is this result.
  bool Holds(int64_t step, uint64_t hash) const {
    return held_.has_value() && held_->step == step && held_->hash() == hash;
  }
  // Describes held_, which must be there.
  Hold OwnHold() const {
    return {next_, held_->hash(), state_steps_, state_hash_};
  }
  void OfferPart(const Call& call);
  void HoldResult(RoundResult result, const MemberId& ack_to, const Call& call);
  void ApplyResult(RoundResult result, const Call& call);
  Instant RepeatsAt() const;
  // Asks once more for everything that it waits for.
  void Repeat(const Call& call);
  void AnswerPast(const MemberId& from, int64_t step, const Call& call);

  // Server.
  Gather* FindGather(int shard, Instant now);  // null: not this member's turn
  MemberId Server(int shard) const {
    return ServerOf(*view_, options_.mode, next_, shard);
  }
  void TryClose(int shard, const Call& call);
  void SpreadResult(int shard, const Call& call) {
    SendToAll(Spread{next_, *gathers_.at(shard).result()}, call);
  }
  void TryCommit(const Call& call);
  bool HasMismatch(const Call& call);
  void KeepState(const MemberId& member, int64_t steps, uint64_t hash);
  int64_t ComparedThrough(const std::vector<MemberId>& members) const;

  // Leveller.
  bool is_leveller() const {
    return view_.has_value() && view_->leveller == self_;
  }
  void GoOnLevelling(const Call& call);
  RoundResult LevelTarget() const;
  void SpreadTarget(const Call& call);
  void EnterRunning(int64_t level_at, const Call& call);

  std::vector<MemberId> Owing() const;

  const RoundOptions options_;
  const MemberId self_;

  Phase phase_ = Phase::kListening;
  std::optional<View> view_;
  MemberId donor_;  // while listening
  int64_t next_;
  int64_t state_steps_;
  uint64_t state_hash_;
  const bool began_;  // with the first state of the attempt: no joiner
  std::vector<PartOffer> part_;        // of next_, one a shard, or none
  std::map<int, ShardResult> shards_;  // of next_, in this view
  std::optional<RoundResult> held_;    // of next_
  std::deque<RoundResult> recent_;     // committed, oldest first

  std::map<int, Gather> gathers_;  // of next_, in this view
  std::map<MemberId, Hold> holds_;
  // Hashes of states by steps, of this member and those whose rounds it serves.
  std::map<MemberId, std::map<int64_t, uint64_t>> states_;
  Deadline deadline_;
  absl::Duration deadline_in_force_;
  std::optional<Instant> applied_;  // time of the last step by this process
  uint64_t last_hash_ = 0;
  bool mismatch_ = false;
  bool has_taken_part_ = false;

  std::optional<Leveller> leveller_;
  int64_t level_at_ = 0;  // steps that were applied when the view was level

  Instant repeated_;              // when what is awaited was last sent
  Instant progress_;              // when something was last achieved
  std::set<MemberId> suspected_;  // since then
};

}  // namespace paceline
