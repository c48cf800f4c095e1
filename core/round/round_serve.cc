// The server's and the leveller's part of RoundMember.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/round/round_member.h"

namespace paceline {

// --- Server ---

MemberId RoundMember::Server(int shard) const {
  return ServerOf(*view_, options_.mode, next_, shard);
}

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

void RoundMember::On(const MemberId& from, const PartOffer& offer, Instant now,
                     RoundActions& actions) {
  if (offer.step < next_) return AnswerPast(from, offer.step, now, actions);
  if (offer.step > next_) return;
  Gather* const gather = FindGather(offer.shard, now);
  if (gather == nullptr || !gather->Counts(from)) return;
  gather->Add(from, offer, now);
  if (gather->result().has_value()) {
    return Send(from, Spread{next_, *gather->result()}, now, actions);
  }
  TryClose(offer.shard, now, actions);
}

void RoundMember::On(const MemberId& from, const Want& want, Instant now,
                     RoundActions& actions) {
  if (want.step < next_) return AnswerPast(from, want.step, now, actions);
  if (want.step > next_ || !view_.has_value() || !Contains(*view_, from)) {
    return;
  }
  const Gather* const gather = FindGather(want.shard, now);
  if (gather != nullptr && gather->result().has_value()) {
    Send(from, Spread{next_, *gather->result()}, now, actions);
  }
}

void RoundMember::TryClose(int shard, Instant now, RoundActions& actions) {
  const auto found = gathers_.find(shard);
  // With fewer members than parts are needed the group is paused.  Joiners
  // count: the steps until theirs pass as void ones, else they never came.
  if (found == gathers_.end() ||
      static_cast<int>(view_->members.size()) < options_.min_parts) {
    return;
  }
  const absl::Duration deadline = deadline_.Get(found->second.first_after());
  if (!found->second.TryClose(options_.min_parts, deadline, now)) return;
  deadline_in_force_ = deadline;
  if (found->second.is_void()) return SpreadResult(shard, now, actions);
  actions.push_back(
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
  SpreadResult(request.shard, now, actions);
}

void RoundMember::SpreadResult(int shard, Instant now, RoundActions& actions) {
  const Spread spread{next_, *gathers_.at(shard).result()};
  SendToAll(spread, now, actions);
}

void RoundMember::On(const MemberId& from, const Hold& hold, Instant now,
                     RoundActions& actions) {
  if (phase_ == Phase::kLevelling) {
    if (is_leveller() && leveller_->OnHold(from, hold.hash)) {
      GoOnLevelling(now, actions);
    }
    return;
  }
  if (hold.step < next_) {
    for (const RoundResult& result : recent_) {
      if (result.step != hold.step) continue;
      return Send(from, Commit{hold.step, result.hash()}, now, actions);
    }
    // A joiner whom that step did not count: nobody has waited for it.
    return Send(from, TooOld{hold.step}, now, actions);
  }
  if (phase_ != Phase::kRunning || hold.step != next_ ||
      MembersAt(*view_, next_).empty() || Server(0) != self_) {
    return;
  }
  holds_[from] = hold;
  TryCommit(now, actions);
}

bool RoundMember::HasMismatch(RoundActions& actions) {
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
  if (mismatch_) actions.push_back(ReportMismatch{next_, std::move(states)});
  return mismatch_;
}

void RoundMember::TryCommit(Instant now, RoundActions& actions) {
  if (!held_.has_value() || held_->step != next_) return;
  const uint64_t hash = held_->hash();
  size_t holding = 0;
  const std::vector<MemberId> members = MembersAt(*view_, next_);
  for (const MemberId& member : members) {
    const auto hold = holds_.find(member);
    holding += hold != holds_.end() && hold->second.hash == hash;
  }
  if (holding < members.size() || HasMismatch(actions)) return;
  const int64_t step = next_;
  progress_ = now;
  ApplyResult(*std::exchange(held_, {}), now, actions);
  SendToAll(Commit{step, hash}, now, actions);
}

// --- Leveller ---

bool RoundMember::is_leveller() const {
  return view_.has_value() && view_->leveller == self_;
}

void RoundMember::On(const MemberId& from, const Answer& answer, Instant now,
                     RoundActions& actions) {
  // A joiner knows too little to level a view, even one of its own: who is gone
  // may have applied what it has never seen.  A coordinator that has just
  // started may name one; what members report makes it think again.
  if (!is_leveller() || is_joiner()) return;
  if (phase_ == Phase::kRunning) {
    if (from != self_) Send(from, LevelDone{}, now, actions);
    return;
  }
  if (leveller_->OnAnswer(from, answer)) return GoOnLevelling(now, actions);
  if (leveller_->phase() == Leveller::Phase::kSpreading && from != self_) {
    Send(from, Level{LevelTarget()}, now, actions);
  }
}

void RoundMember::GoOnLevelling(Instant now, RoundActions& actions) {
  // A late word from the view before came after this member's own answer.
  leveller_->OnApplied(next_, last_hash_);
  // Somebody applied what this member only holds.
  TakeProof(leveller_->applied(), leveller_->applied_hash(), now, actions);
  if (leveller_->phase() == Leveller::Phase::kAsking ||
      leveller_->phase() == Leveller::Phase::kSpreading) {
    return;
  }
  // It was level once and fell behind before its first step.
  if (next_ < leveller_->applied()) {
    return Send(leveller_->furthest(), Want{next_, 0}, now, actions);
  }
  switch (leveller_->phase()) {
    case Leveller::Phase::kAsking:
    case Leveller::Phase::kSpreading:
      return;
    case Leveller::Phase::kFetching:
      if (held_.has_value() && held_->step == leveller_->target()->step &&
          held_->hash() == leveller_->target()->hash()) {
        return SpreadTarget(now, actions);
      }
      return Send(leveller_->holder(),
                  Fetch{leveller_->target()->step, leveller_->target()->hash()},
                  now, actions);
    case Leveller::Phase::kDone:
      if (leveller_->target().has_value()) {
        TakeProof(leveller_->level_at(), leveller_->target()->hash(), now,
                  actions);
      }
      EnterRunning(next_, now, actions);
      return SendToAll(LevelDone{}, now, actions);
  }
}

// Not held_: a late word from an earlier view can have proved it final, and it
// is applied then, while others still lack it.
RoundResult RoundMember::LevelTarget() const {
  RoundResult result = *leveller_->target();
  result.view = view_->id;
  return result;
}

void RoundMember::SpreadTarget(Instant now, RoundActions& actions) {
  if (next_ != leveller_->target()->step) return;
  leveller_->OnBytes();
  RoundResult result = LevelTarget();
  held_ = result;
  SendToAll(Level{std::move(result)}, now, actions);
}

void RoundMember::On(const MemberId& from, const Level& level, Instant now,
                     RoundActions& actions) {
  if (phase_ != Phase::kLevelling || from != view_->leveller) return;
  // A joiner that is behind.
  if (level.result.step > next_)
    return Send(from, Want{next_, 0}, now, actions);
  if (level.result.step + 1 == next_ && level.result.hash() == last_hash_) {
    // Applied already, on a late word from the view before.
    return Send(from, Hold{level.result.step, last_hash_, 0, 0}, now, actions);
  }
  if (level.result.step < next_) return;
  HoldResult(level.result, view_->leveller, now, actions);
}

void RoundMember::EnterRunning(int64_t level_at, Instant now,
                               RoundActions& actions) {
  phase_ = Phase::kRunning;
  level_at_ = level_at;
  progress_ = now;
  suspected_.clear();
  // What is still held is of no step that is open.
  held_.reset();
  shards_.clear();
  OfferPart(now, actions);
}

void RoundMember::On(const MemberId& from, const Fetch& fetch, Instant now,
                     RoundActions& actions) {
  if (phase_ == Phase::kLevelling && held_.has_value() &&
      held_->step == fetch.step && held_->hash() == fetch.hash) {
    Send(from, Fetched{*held_}, now, actions);
  }
}

void RoundMember::On(const MemberId&, const Fetched& fetched, Instant now,
                     RoundActions& actions) {
  if (phase_ == Phase::kLevelling && is_leveller() &&
      leveller_->phase() == Leveller::Phase::kFetching &&
      fetched.result.hash() == leveller_->target()->hash()) {
    SpreadTarget(now, actions);
  }
}

// --- Who owes an answer ---

// Only what is owed at once: a part may take as long as it computes.
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
  // Who computes waits for nobody; who is not counted yet has nothing to do.
  if (needs_part() || MembersAt(*view_, next_).empty()) return awaited;
  for (int shard = 0; shard < options_.shards; ++shard) {
    const MemberId server = Server(shard);
    if (server != self_ && shards_.find(shard) == shards_.end()) {
      awaited.push_back(server);
    }
  }
  return awaited;
}

void RoundMember::SuspectSilent(Instant now, RoundActions& actions) {
  if (now - progress_ < options_.lease) return;
  for (const MemberId& member : Owing()) {
    if (member != self_ && suspected_.insert(member).second) {
      actions.push_back(Suspect{member});
    }
  }
}

}  // namespace paceline
