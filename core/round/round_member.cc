#include "core/round/round_member.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"

namespace paceline {
namespace {

// Messages of joiners and of members that lack results hold in every view.
bool IsOfAnyView(const Body& body) {
  return IsAnyOf<StateRequest, StateOffer, Committed, TooOld, Want>(body);
}

}  // namespace

RoundMember::RoundMember(const RoundOptions& options, MemberId self,
                         int64_t next, uint64_t state_hash)
    : options_(options),
      self_(self),
      next_(next),
      state_steps_(next),
      state_hash_(state_hash),
      began_(state_hash != 0),
      deadline_(options.deadline),
      deadline_in_force_(options.deadline.ceiling) {}

// --- Sending ----------------------------------------------------------------

RoundMessage RoundMember::Message(Body body) const {
  RoundMessage message;
  message.attempt = options_.attempt;
  if (view_.has_value()) message.view = view_->id;
  message.from = self_;
  message.committed_through = next_;
  message.committed_hash = last_hash_;
  message.body = std::move(body);
  return message;
}

void RoundMember::Send(const MemberId& to, Body body, const Call& call) {
  RoundMessage message = Message(std::move(body));
  if (to == self_) return Handle(message, call);
  call.actions.push_back(SendMessage{to, std::move(message)});
}

// This member comes last: its answer may end the round of the message.
void RoundMember::SendToAll(const Body& body, const Call& call) {
  const RoundMessage message = Message(body);
  for (const ViewMember& member : view_->members) {
    if (member.id == self_) continue;
    call.actions.push_back(SendMessage{member.id, message});
  }
  Handle(message, call);
}

// --- Events -----------------------------------------------------------------

void RoundMember::OnView(const View& view, Instant now, RoundActions& actions) {
  if (!IsNews(view)) return;
  has_taken_part_ = has_taken_part();
  view_ = view;
  gathers_.clear();
  holds_.clear();
  std::erase_if(states_, [&view](const auto& each) {
    return !Contains(view, each.first);
  });
  shards_.clear();
  leveller_.reset();
  mismatch_ = false;
  suspected_.clear();
  progress_ = repeated_ = now;
  if (!Contains(view, self_)) {
    phase_ = Phase::kListening;
    return;
  }
  phase_ = Phase::kLevelling;
  if (is_leveller()) leveller_.emplace(view);
  Send(view.leveller, OwnAnswer(), {now, actions});
}

bool RoundMember::MayTake(const RoundMessage& message) const {
  if (message.attempt != options_.attempt) return false;
  // A member takes no result of a view later than its own: it adopts that view
  // first.
  if (IsOfAnyView(message.body)) {
    return !std::holds_alternative<Committed>(message.body) ||
           !view_.has_value() || message.view <= view_->id;
  }
  // A member refuses older views since it adopted this one.  It learns of a
  // newer view from the coordinator first; the sender repeats the message.
  return view_.has_value() && message.view == view_->id &&
         Contains(*view_, message.from);
}

void RoundMember::Handle(const RoundMessage& message, const Call& call) {
  if (!MayTake(message)) return;
  // A member that is not level yet believes only its leveller's messages.
  if ((phase_ == Phase::kRunning || IsAnyOf<Level, LevelDone>(message.body)) &&
      message.view == view_->id) {
    TakeProof(message.committed_through, message.committed_hash, call);
  }
  if (std::holds_alternative<LevelDone>(message.body)) {
    if (phase_ == Phase::kLevelling && message.from == view_->leveller) {
      EnterRunning(message.committed_through, call);
    }
    return;
  }
  std::visit([&](const auto& body) { On(message.from, body, call); },
             message.body);
}

// A sender that has applied the very result held here proves it final: this
// member applies it before it handles the message.
void RoundMember::TakeProof(int64_t committed_through, uint64_t committed_hash,
                            const Call& call) {
  if (committed_through == next_ + 1 && Holds(next_, committed_hash)) {
    ApplyResult(*std::exchange(held_, {}), call);
  }
}

void RoundMember::OnPart(const std::vector<PartOffer>& shards, Instant now,
                         RoundActions& actions) {
  if (shards.empty() || shards.front().step != next_ || !part_.empty()) return;
  PACELINE_CHECK(static_cast<int>(shards.size()) == options_.shards,
                 "a part has one offer a shard");
  part_ = shards;
  OfferPart({now, actions});
}

void RoundMember::OnState(int64_t steps, uint64_t hash) {
  if (steps < state_steps_) return;
  state_steps_ = steps;
  state_hash_ = hash;
  KeepState(self_, steps, hash);
}

void RoundMember::KeepState(const MemberId& member, int64_t steps,
                            uint64_t hash) {
  if (hash == 0) return;
  auto& states = states_[member];
  states[steps] = hash;
  if (states.size() > kMostStates) states.erase(states.begin());
}

void RoundMember::OnTick(Instant now, RoundActions& actions) {
  if (phase_ == Phase::kRunning) {
    for (int shard = 0; shard < options_.shards; ++shard) {
      TryClose(shard, {now, actions});
    }
  }
  if (now < RepeatsAt()) return;
  repeated_ = now;
  Repeat({now, actions});
  if (now - progress_ < options_.lease) return;
  for (const MemberId& member : Owing()) {
    if (member != self_ && suspected_.insert(member).second) {
      actions.push_back(Suspect{member});
    }
  }
}

// Repeats less often in a long round: the others still work then, and every
// repeated message adds to it.  64 members send 126 messages each.
Instant RoundMember::RepeatsAt() const {
  if (phase_ != Phase::kRunning) return repeated_ + options_.retry_period;
  return std::max(repeated_, progress_) +
         std::max(options_.retry_period,
                  std::min(repeated_ - progress_, options_.lease / 4));
}

void RoundMember::Join(const MemberId& donor, Instant now,
                       RoundActions& actions) {
  donor_ = donor;
  if (phase_ == Phase::kListening) Send(donor, StateRequest{}, {now, actions});
}

std::optional<Instant> RoundMember::DueAt() const {
  std::optional<Instant> first;
  for (const auto& [shard, gather] : gathers_) {
    const auto due =
        gather.DueAt(options_.min_parts, deadline_.Get(gather.first_after()));
    if (due.has_value() && (!first.has_value() || *due < *first)) first = due;
  }
  return first;
}

bool RoundMember::is_counted() const {
  if (!view_.has_value() || is_behind()) return false;
  return std::ranges::any_of(view_->members, [this](const ViewMember& member) {
    return member.id == self_ && member.from_step <= next_;
  });
}

// --- A member's own way through a round ---

void RoundMember::OfferPart(const Call& call) {
  if (phase_ != Phase::kRunning || !is_counted() || held_.has_value()) return;
  const int64_t step = next_;
  // Copies the part: the last offer, to this very member, may end the step.
  const std::vector<PartOffer> part = part_;
  for (const PartOffer& offer : part) {
    if (next_ != step || shards_.find(offer.shard) != shards_.end()) continue;
    Send(Server(offer.shard), offer, call);
  }
}

void RoundMember::On(const MemberId& from, const Spread& spread,
                     const Call& call) {
  const int shard = spread.result.shard;
  if (phase_ != Phase::kRunning || spread.step != next_ || shard < 0 ||
      shard >= options_.shards || MembersAt(*view_, next_).empty() ||
      from != Server(shard)) {
    return;
  }
  if (held_.has_value()) {
    // The hold was lost, or is on its way.
    return Send(Server(0), OwnHold(), call);
  }
  shards_.emplace(shard, spread.result);
  if (static_cast<int>(shards_.size()) < options_.shards) return;
  RoundResult result{next_, view_->id, {}};
  for (auto& [number, each] : shards_) result.shards.push_back(each);
  HoldResult(std::move(result), Server(0), call);
}

void RoundMember::HoldResult(RoundResult result, const MemberId& ack_to,
                             const Call& call) {
  held_ = std::move(result);
  progress_ = call.now;
  Send(ack_to, OwnHold(), call);
}

void RoundMember::On(const MemberId&, const Commit& commit, const Call& call) {
  if (phase_ == Phase::kRunning && commit.step == next_ &&
      Holds(next_, commit.hash)) {
    held_->compared_through = commit.compared_through;
    ApplyResult(*std::exchange(held_, {}), call);
  }
}

void RoundMember::ApplyResult(RoundResult result, const Call& call) {
  PACELINE_CHECK(result.step == next_, "steps are applied in order");
  // Those who compared their states did not wait for this member's hash where
  // the step does not count it, or was committed in another view.
  const bool is_compared = is_counted() && result.view == view_->id;
  progress_ = call.now;
  for (const ShardResult& shard : result.shards) deadline_.Add(shard.arrivals);
  ++next_;
  last_hash_ = result.hash();
  part_.clear();
  shards_.clear();
  held_.reset();
  gathers_.clear();
  holds_.clear();
  suspected_.clear();
  applied_ = call.now;
  recent_.push_back(result);
  if (static_cast<int>(recent_.size()) > options_.kept_results) {
    recent_.pop_front();
  }
  if (!is_compared) result.compared_through = 0;
  call.actions.push_back(Apply{std::move(result)});
}

void RoundMember::Repeat(const Call& call) {
  switch (phase_) {
    case Phase::kListening:
      // A member that is excluded from its view waits for its end.
      if (!donor_.worker.assigned() || view_.has_value()) return;
      if (state_hash_ == 0) return Send(donor_, StateRequest{}, call);
      return Send(donor_, Want{next_, 0}, call);
    case Phase::kLevelling:
      if (is_leveller() && leveller_->phase() != Leveller::Phase::kAsking) {
        return GoOnLevelling(call);
      }
      return Send(view_->leveller, OwnAnswer(), call);
    case Phase::kRunning:
      break;
  }
  if (is_behind()) return Send(view_->leveller, Want{next_, 0}, call);
  if (MembersAt(*view_, next_).empty()) return;
  if (held_.has_value()) return Send(Server(0), OwnHold(), call);
  if (!part_.empty()) return OfferPart(call);
  const int64_t step = next_;
  for (int shard = 0; shard < options_.shards && next_ == step; ++shard) {
    if (shards_.find(shard) != shards_.end()) continue;
    Send(Server(shard), Want{step, shard}, call);
  }
}

// --- Members that lack results ---

void RoundMember::AnswerPast(const MemberId& from, int64_t step,
                             const Call& call) {
  for (const RoundResult& result : recent_) {
    if (result.step == step) return Send(from, Committed{result}, call);
  }
  Send(from, TooOld{step}, call);
}

void RoundMember::On(const MemberId&, const Committed& committed,
                     const Call& call) {
  // A final result is the only one of its step, whatever the view.
  if (committed.result.step != next_ || state_hash_ == 0) return;
  ApplyResult(committed.result, call);
  if (phase_ == Phase::kLevelling && is_leveller()) GoOnLevelling(call);
}

void RoundMember::On(const MemberId& from, const TooOld& old,
                     const Call& call) {
  if (old.step == next_) Send(from, StateRequest{}, call);
}

void RoundMember::On(const MemberId& from, const StateRequest&,
                     const Call& call) {
  if (phase_ != Phase::kListening) call.actions.push_back(OfferState{from});
}

void RoundMember::On(const MemberId& from, const StateOffer& offer,
                     const Call& call) {
  // The results in a state are final; so was the step that is held here.
  const bool first = state_hash_ == 0 && phase_ == Phase::kListening;
  if (!first && offer.next <= next_) return;
  next_ = state_steps_ = offer.next;
  applied_.reset();
  state_hash_ = offer.state_hash;
  last_hash_ = offer.last_hash;
  part_.clear();
  shards_.clear();
  held_.reset();
  gathers_.clear();
  holds_.clear();
  recent_.clear();
  call.actions.push_back(TakeState{from, offer.next, offer.state_hash});
  if (phase_ == Phase::kLevelling && is_leveller()) GoOnLevelling(call);
}

// --- Server ---

Gather* RoundMember::FindGather(int shard, Instant now) {
  if (phase_ != Phase::kRunning || is_behind() || shard < 0 ||
      shard >= options_.shards) {
    return nullptr;
  }
  const auto found = gathers_.find(shard);
  if (found != gathers_.end()) return &found->second;
  const std::vector<MemberId> members = MembersAt(*view_, next_);
  if (members.empty() || Server(shard) != self_) return nullptr;
  return &gathers_.try_emplace(shard, shard, members, applied_.value_or(now))
              .first->second;
}

void RoundMember::On(const MemberId& from, const PartOffer& offer,
                     const Call& call) {
  if (offer.step < next_) return AnswerPast(from, offer.step, call);
  if (offer.step > next_) return;
  Gather* const gather = FindGather(offer.shard, call.now);
  if (gather == nullptr || !gather->Counts(from)) return;
  gather->Add(from, offer, call.now);
  if (gather->result().has_value()) {
    return Send(from, Spread{next_, *gather->result()}, call);
  }
  TryClose(offer.shard, call);
}

void RoundMember::On(const MemberId& from, const Want& want, const Call& call) {
  if (want.step < next_) return AnswerPast(from, want.step, call);
  if (want.step > next_ || !view_.has_value() || !Contains(*view_, from)) {
    return;
  }
  const Gather* const gather = FindGather(want.shard, call.now);
  if (gather != nullptr && gather->result().has_value()) {
    Send(from, Spread{next_, *gather->result()}, call);
  }
}

void RoundMember::TryClose(int shard, const Call& call) {
  const auto found = gathers_.find(shard);
  // A group of fewer than min_parts members is paused.  Joiners count as
  // members: steps before theirs pass as void, else joiners would never begin.
  if (found == gathers_.end() ||
      static_cast<int>(view_->members.size()) < options_.min_parts) {
    return;
  }
  const absl::Duration deadline = deadline_.Get(found->second.first_after());
  if (!found->second.TryClose(options_.min_parts, deadline, call.now)) return;
  deadline_in_force_ = deadline;
  if (found->second.is_void()) return SpreadResult(shard, call);
  call.actions.push_back(
      Aggregate{view_->id, next_, shard, found->second.contributors()});
}

void RoundMember::OnAggregated(const Aggregate& request, uint64_t hash,
                               int64_t divisor, Instant now,
                               RoundActions& actions) {
  if (!view_.has_value() || request.view != view_->id ||
      request.step != next_ || phase_ != Phase::kRunning) {
    return;
  }
  const auto found = gathers_.find(request.shard);
  if (found == gathers_.end() || found->second.result().has_value()) return;
  found->second.SetResult(hash, divisor);
  SpreadResult(request.shard, {now, actions});
}

void RoundMember::On(const MemberId& from, const Hold& hold, const Call& call) {
  if (phase_ == Phase::kLevelling) {
    if (is_leveller() && leveller_->OnHold(from, hold.hash)) {
      GoOnLevelling(call);
    }
    return;
  }
  if (hold.step < next_) {
    for (const RoundResult& result : recent_) {
      if (result.step != hold.step) continue;
      return Send(from,
                  Commit{hold.step, result.hash(), result.compared_through},
                  call);
    }
    // The step did not count this joiner: no member has waited for its hold.
    return Send(from, TooOld{hold.step}, call);
  }
  if (phase_ != Phase::kRunning || hold.step != next_ ||
      MembersAt(*view_, next_).empty() || Server(0) != self_) {
    return;
  }
  holds_[from] = hold;
  KeepState(from, hold.state_step, hold.state_hash);
  TryCommit(call);
}

bool RoundMember::HasMismatch(const Call& call) {
  if (mismatch_) return true;
  std::map<MemberId, uint64_t> states;
  for (const auto& [member, hold] : holds_) {
    if (hold.state_step == next_ && hold.state_hash != 0) {
      states[member] = hold.state_hash;
    }
  }
  for (const auto& [member, hash] : states) {
    mismatch_ = mismatch_ || hash != states.begin()->second;
  }
  if (mismatch_) {
    call.actions.push_back(ReportMismatch{next_, std::move(states)});
  }
  return mismatch_;
}

// The newest step after which all had this member's state; 0: none is known.
int64_t RoundMember::ComparedThrough(
    const std::vector<MemberId>& members) const {
  int64_t through = 0;
  const auto own = states_.find(self_);
  // Joiners that no step counts yet have states that nobody has compared.
  const bool alone = members.size() == 1 && view_->members.size() > 1;
  if (alone || own == states_.end()) return through;
  for (const auto& [step, hash] : own->second) {
    const bool equal = std::all_of(
        members.begin(), members.end(), [&, at = step, is = hash](auto& id) {
          const auto theirs = states_.find(id);
          if (theirs == states_.end()) return false;
          const auto state = theirs->second.find(at);
          return state != theirs->second.end() && state->second == is;
        });
    if (equal) through = step;
  }
  return through;
}

void RoundMember::TryCommit(const Call& call) {
  if (!held_.has_value() || held_->step != next_) return;
  const uint64_t hash = held_->hash();
  const std::vector<MemberId> members = MembersAt(*view_, next_);
  for (const MemberId& member : members) {
    const auto hold = holds_.find(member);
    if (hold == holds_.end() || hold->second.hash != hash) return;
  }
  if (HasMismatch(call)) return;
  const Commit commit{next_, hash, ComparedThrough(members)};
  held_->compared_through = commit.compared_through;
  ApplyResult(*std::exchange(held_, {}), call);
  SendToAll(commit, call);
}

// --- Leveller ---

void RoundMember::On(const MemberId& from, const Answer& answer,
                     const Call& call) {
  // A joiner must not level a view, even one of its own: a lost member may have
  // applied a result that it has never seen.  A coordinator that has just
  // started may name a joiner, until members report.
  if (!is_leveller() || is_joiner()) return;
  if (phase_ == Phase::kRunning) {
    if (from != self_) Send(from, LevelDone{}, call);
    return;
  }
  if (leveller_->OnAnswer(from, answer)) return GoOnLevelling(call);
  if (leveller_->phase() == Leveller::Phase::kSpreading && from != self_) {
    Send(from, Level{LevelTarget()}, call);
  }
}

void RoundMember::GoOnLevelling(const Call& call) {
  // A late message of the last view may have come after its own answer.
  leveller_->OnApplied(next_, last_hash_);
  // Another member may have applied the result that this one only holds.
  TakeProof(leveller_->applied(), leveller_->applied_hash(), call);
  const bool fetches = leveller_->phase() == Leveller::Phase::kFetching;
  if (!fetches && leveller_->phase() != Leveller::Phase::kDone) return;
  // This member was level once, and fell behind before its first step.
  if (next_ < leveller_->applied()) {
    return Send(leveller_->furthest(), Want{next_, 0}, call);
  }
  const std::optional<RoundResult>& target = leveller_->target();
  if (fetches) {
    if (Holds(target->step, target->hash())) return SpreadTarget(call);
    return Send(leveller_->holder(), Fetch{target->step, target->hash()}, call);
  }
  if (target.has_value()) {
    TakeProof(leveller_->level_at(), target->hash(), call);
  }
  EnterRunning(next_, call);
  SendToAll(LevelDone{}, call);
}

// Not held_: a late message of an earlier view may have proved it final.  Then
// it is applied here while others still lack it.
RoundResult RoundMember::LevelTarget() const {
  RoundResult result = *leveller_->target();
  result.view = view_->id;
  return result;
}

void RoundMember::SpreadTarget(const Call& call) {
  if (next_ != leveller_->target()->step) return;
  leveller_->OnBytes();
  RoundResult result = LevelTarget();
  held_ = result;
  SendToAll(Level{std::move(result)}, call);
}

void RoundMember::On(const MemberId& from, const Level& level,
                     const Call& call) {
  if (phase_ != Phase::kLevelling || from != view_->leveller) return;
  // This member is a joiner that is behind.
  if (level.result.step > next_) return Send(from, Want{next_, 0}, call);
  if (level.result.step + 1 == next_ && level.result.hash() == last_hash_) {
    // Applied already, by a late message of the last view.
    return Send(from, Hold{level.result.step, last_hash_, 0, 0}, call);
  }
  if (level.result.step < next_) return;
  HoldResult(level.result, view_->leveller, call);
}

void RoundMember::EnterRunning(int64_t level_at, const Call& call) {
  phase_ = Phase::kRunning;
  level_at_ = level_at;
  progress_ = call.now;
  suspected_.clear();
  // A result that is still held belongs to no open step.
  held_.reset();
  shards_.clear();
  OfferPart(call);
}

void RoundMember::On(const MemberId& from, const Fetch& fetch,
                     const Call& call) {
  if (phase_ == Phase::kLevelling && Holds(fetch.step, fetch.hash)) {
    Send(from, Fetched{*held_}, call);
  }
}

void RoundMember::On(const MemberId&, const Fetched& fetched,
                     const Call& call) {
  if (phase_ == Phase::kLevelling && is_leveller() &&
      leveller_->phase() == Leveller::Phase::kFetching &&
      fetched.result.hash() == leveller_->target()->hash()) {
    SpreadTarget(call);
  }
}

// --- Members that owe an answer ---

// Only answers that are owed at once: a part takes as long as it computes.
std::vector<MemberId> RoundMember::Owing() const {
  if (phase_ == Phase::kLevelling) {
    return is_leveller() ? leveller_->Missing()
                         : std::vector<MemberId>{view_->leveller};
  }
  std::vector<MemberId> owing;
  if (phase_ != Phase::kRunning || !held_.has_value() ||
      MembersAt(*view_, next_).empty()) {
    return owing;
  }
  if (Server(0) != self_) return {Server(0)};
  for (const MemberId& member : MembersAt(*view_, next_)) {
    if (holds_.find(member) == holds_.end()) owing.push_back(member);
  }
  return owing;
}

std::vector<MemberId> RoundMember::Awaited() const {
  std::vector<MemberId> awaited;
  if (phase_ != Phase::kRunning || held_.has_value()) return awaited;
  if (is_behind()) return {view_->leveller};
  // A member that computes waits for no other; one that is not counted yet has
  // nothing to do.
  if (needs_part() || MembersAt(*view_, next_).empty()) return awaited;
  for (int shard = 0; shard < options_.shards; ++shard) {
    const MemberId server = Server(shard);
    if (server != self_ && shards_.find(shard) == shards_.end()) {
      awaited.push_back(server);
    }
  }
  return awaited;
}

}  // namespace paceline
