// The other half of RoundDriver: what the state machine wants done, and what
// is told of it.
#include <algorithm>
#include <utility>

#include "core/cluster/eviction.h"
#include "core/obs/log.h"
#include "worker/round_driver.h"

namespace paceline {
namespace {

constexpr size_t kKnownHashes = 64;
// Where steps are shorter than a copy takes, no further copy catches up: the
// group waits for such a joiner.
constexpr int kMostCopies = 2;

}  // namespace

void RoundDriver::Settle() {
  while (!actions_.empty()) {
    const RoundActions now = std::exchange(actions_, {});
    if (options_.on_serving != nullptr) SayCommits(now);
    for (const RoundAction& action : now) {
      std::visit([this](const auto& each) { Do(each); }, action);
    }
  }
  if (!member_.has_value()) return;
  ExpectParts();
  Publish();
  GiveEarly();
}

// The server's own Apply comes with the commits that it is to send.
void RoundDriver::SayCommits(const RoundActions& actions) const {
  const auto sends = [](const RoundAction& action) {
    const auto* send = std::get_if<SendMessage>(&action);
    return send != nullptr &&
           std::holds_alternative<Commit>(send->message.body);
  };
  for (const RoundAction& action : actions) {
    const auto* apply = std::get_if<Apply>(&action);
    if (apply == nullptr ||
        std::none_of(actions.begin(), actions.end(), sends)) {
      continue;
    }
    options_.on_serving(apply->result.step, "committing");
  }
}

void RoundDriver::Do(const SendMessage& action) {
  const Body& body = action.message.body;
  RoundTransport& transport = parts_.transport;
  if (const auto* offer = std::get_if<PartOffer>(&body)) {
    const PayloadKey key{PayloadKey::Kind::kPart, offer->step, offer->shard, 0};
    std::shared_ptr<RoundPayload> payload;
    if (offer->samples > 0) {
      if (part_.offers.empty() || part_.offers.front().step != offer->step) {
        return;
      }
      payload = part_.payloads[offer->shard];
    }
    if (part_.duplicates) {
      transport.Send(action.to, action.message, key, payload);
    }
    return transport.Send(action.to, action.message, key, std::move(payload));
  }
  if (const auto* spread = std::get_if<Spread>(&body)) {
    return SendResult(action, {spread->step, {}, {spread->result}});
  }
  if (const auto* committed = std::get_if<Committed>(&body)) {
    return SendResult(action, committed->result);
  }
  if (const auto* fetched = std::get_if<Fetched>(&body)) {
    return SendResult(action, fetched->result);
  }
  if (const auto* level = std::get_if<Level>(&body)) {
    return SendResult(action, level->result);
  }
  transport.Send(action.to, action.message, {}, nullptr);
}

// The bytes of all shards, the message behind those of the last: the other
// side waits for the rest.
void RoundDriver::SendResult(const SendMessage& action,
                             const RoundResult& result) {
  PayloadKey last;
  std::shared_ptr<RoundPayload> bytes;
  for (const ShardResult& shard : result.shards) {
    if (result.is_void() || shape_.values(shard.shard) == 0) continue;
    const RoundStore::Result found =
        parts_.store.FindResult(result.step, shard.shard, shard.hash);
    if (found.payload == nullptr) return;  // long past; a copy helps
    if (bytes != nullptr) {
      parts_.transport.SendAhead(action.to, last, std::move(bytes));
    }
    last = {PayloadKey::Kind::kResult, result.step, shard.shard, found.variant};
    bytes = found.payload;
  }
  parts_.transport.Send(action.to, action.message, last, std::move(bytes));
}

void RoundDriver::Do(const SumRequest& action) { parts_.sum.Close(action); }

void RoundDriver::Do(const Apply& action) {
  RoundTurn turn;
  turn.kind = RoundTurn::Kind::kApply;
  turn.step = action.result.step;
  turn.result = action.result;
  if (!action.result.is_void()) {
    turn.divisor = action.result.shards.front().divisor;
    for (const ShardResult& shard : action.result.shards) {
      turn.sums.push_back(
          parts_.store.FindResult(turn.step, shard.shard, shard.hash).payload);
      if (turn.sums.back() == nullptr) {
        return parts_.turns.End(
            absl::InternalError("a result was held whose bytes are not here"));
      }
    }
  }
  const auto record = chronicle_.OnApply(
      action.result, member_->view(),
      member_->phase() == RoundMember::Phase::kRunning, parts_.clock.Now(),
      absl::ToUnixMillis(parts_.clock.Today()));
  const int64_t next = turn.step + 1;
  hashes_[next] = action.result.hash();
  if (hashes_.size() > kKnownHashes) hashes_.erase(hashes_.begin());
  links_.ClearOwing();
  // The part's memory is the compute thread's again when it hears of this.
  part_ = {};
  parts_.sum.Forget(next);
  parts_.transport.Forget(next);
  parts_.store.Forget(next - kKeptResults);
  std::erase_if(parked_, [this](const RoundMessage& message) {
    return message.committed_through < member_->next();
  });
  parts_.turns.Push(std::move(turn));
  if (record.has_value()) parts_.observer.OnRound(*record);
}

void RoundDriver::Do(const Suspect& action) {
  Log(LogLevel::kWarn, "a member owes an answer for a lease",
      {{"worker", action.member.worker.value}, {"step", member_->next()}});
  links_.SetOwing(action.member, parts_.clock.Now());
  report_changed_ = true;
}

void RoundDriver::Do(const ReportMismatch& action) {
  ++chronicle_.stats().mismatches;
  for (const auto& [member, hash] : action.state_hashes) {
    Log(LogLevel::kError, "states differ that must be equal: rounds stop",
        {{"step", action.step},
         {"worker", member.worker.value},
         {"hash", absl::Hex(hash)}});
  }
  mismatch_found_ = action;
  report_changed_ = true;
}

void RoundDriver::Do(const TakeCopy& action) {
  RoundTurn turn;
  turn.kind = RoundTurn::Kind::kRestore;
  turn.step = action.next;
  turn.state = std::exchange(state_, nullptr);
  turn.state_hash = action.state_hash;
  ++copies_taken_;
  hashes_.clear();
  hashes_[action.next] = member_->last_hash();
  part_ = {};
  parts_.sum.Forget(action.next);
  parts_.transport.Forget(action.next);
  parts_.store.Forget(action.next);
  parts_.store.ForgetState();
  parts_.turns.Push(std::move(turn));
  AskForNext(action.from);
}

void RoundDriver::Do(const SendCopy& action) {
  copies_.OnWanted(action.to, heard_[action.to], member_->next());
}

void RoundDriver::OnStateCopied(int64_t next, uint64_t state_hash,
                                std::shared_ptr<RoundPayload> state) {
  if (!member_.has_value()) return;
  copies_.OnCopied(Message(Copy{next, HashAfter(next), state_hash}),
                   std::move(state));
}

// Whose parts are to be summed here, if anything changed about that.
void RoundDriver::ExpectParts() {
  if (!member_->view().has_value()) return;
  const std::pair<ViewId, int64_t> now = {member_->view()->id, member_->next()};
  if (now == expected_) return;
  expected_ = now;
  chronicle_.stats().serves = false;
  const std::vector<MemberId> members =
      MembersAt(*member_->view(), member_->next());
  if (members.empty()) return;
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    if (ServerOf(*member_->view(), mode_, member_->next(), shard) !=
        options_.self) {
      continue;
    }
    chronicle_.stats().serves = true;
    parts_.sum.Expect(member_->next(), shard, members);
  }
}

void RoundDriver::Publish() {
  // Who has nothing yet has applied no steps either.
  copies_.Drop([this](const MemberId& joiner, int64_t steps) {
    return heard_[joiner] >= std::max<int64_t>(1, steps);
  });
  const bool listens = member_->phase() == RoundMember::Phase::kListening;
  RoundTurns::State state;
  state.view = member_->view();
  state.next = member_->next();
  state.has_state = has_state_ || member_->state_hash() != 0;
  state.needs_part = member_->needs_part();
  state.uploads = group_.uploader == options_.self && !listens;
  parts_.turns.Publish(std::move(state));

  Told told;
  if (member_->view().has_value()) told.view = member_->view()->id;
  told.phase = member_->phase();
  told.has_taken_part = member_->has_taken_part();
  told.level = listens && IsLevel();
  if (told == told_ && !report_changed_) return;
  told_ = told;
  report_changed_ = false;
  changed_ = true;
}

// One that lags fetches more first: results, or another copy.
bool RoundDriver::IsLevel() const {
  return has_state_ && (group_next_ - member_->next() <= kStepsAhead ||
                        copies_taken_ >= kMostCopies);
}

MemberReport RoundDriver::Report(Instant now) const {
  MemberReport report;
  if (!member_.has_value()) return report;
  report.view = told_.view;
  report.next = member_->next();
  report.has_taken_part = told_.has_taken_part;
  report.level = told_.level;
  report.state_step = member_->state_steps();
  report.state_hash = member_->state_hash();
  report.peers = links_.Report(now, options_.lease);
  AddAwaited(member_->Awaited(), report.peers);
  if (mismatch_found_.has_value()) {
    report.mismatch_step = mismatch_found_->step;
    report.mismatch = mismatch_found_->state_hashes;
  }
  return report;
}

RoundStats RoundDriver::Stats() const {
  RoundStats stats = chronicle_.stats();
  if (member_.has_value()) {
    stats.deadline_seconds = absl::ToDoubleSeconds(member_->deadline());
  }
  return stats;
}

}  // namespace paceline
