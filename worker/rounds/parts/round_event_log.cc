#include "worker/rounds/parts/round_event_log.h"

#include <algorithm>

#include "core/rpc/convert/mirror.h"

namespace paceline {

const char* SkipReasonName(SkipReason reason) {
  static constexpr const char* kNames[kSkipReasons] = {
      "late", "lost", "not-finite", "hash", "division", "empty", "outvoted"};
  return kNames[static_cast<size_t>(reason)];
}

void AddSkip(const MemberId& member, SkipReason reason,
             v1::RoundRecord& record) {
  v1::RoundRecord::Skip& skip = *record.add_skipped();
  skip.set_worker_id(member.worker.value);
  skip.set_reason(SkipReasonName(reason));
}

void RoundStats::AddCounts(const RoundStats& other) {
  committed += other.committed;
  void_rounds += other.void_rounds;
  refused_results += other.refused_results;
  refused_messages += other.refused_messages;
  mismatches += other.mismatches;
  takeovers += other.takeovers;
  seconds += other.seconds;
  for (size_t i = 0; i < skipped.size(); ++i) skipped[i] += other.skipped[i];
  for (size_t i = 0; i < durations.size(); ++i) {
    durations[i] += other.durations[i];
  }
}

void RoundEventLog::OnView(
    const std::optional<View>& before, const View& after, int64_t next,
    const std::function<Instant(const MemberId&)>& lost_at) {
  if (!before.has_value() || before->id == after.id) return;
  const std::vector<MemberId> members = MembersAt(*before, next);
  for (const MemberId& member : members) {
    if (Contains(after, member)) continue;
    lost_.insert(member);
    offers_.erase(member);
  }
  if (members.empty()) return;
  const MemberId server = ServerOf(*before, mode_, next, 0);
  if (Contains(after, server)) return;
  lost_server_ = server;
  lost_at_ = lost_at(server);
}

void RoundEventLog::OnOffer(const MemberId& from, const PartOffer& offer,
                            PartCheck check, Instant now) {
  if (!first_.has_value()) first_ = now;
  offers_.insert_or_assign(from, std::make_pair(offer, check));
}

bool RoundEventLog::IsUsed(const MemberId& member, const ShardResult& shard) {
  return std::ranges::count(shard.contributors, member, &Contributor::member) >
         0;
}

std::optional<SkipReason> RoundEventLog::ReasonFor(
    const MemberId& member, const ShardResult& shard) const {
  if (IsUsed(member, shard)) return {};
  const auto found = offers_.find(member);
  // Absent members do not make a round void.
  if (found == offers_.end()) {
    return shard.is_void ? std::nullopt : std::optional(SkipReason::kLate);
  }
  const auto& [offer, check] = found->second;
  if (check == PartCheck::kNotFinite) return SkipReason::kNotFinite;
  if (check == PartCheck::kWrongHash) return SkipReason::kHash;
  if (offer.samples == 0) {
    return offer.not_finite ? SkipReason::kNotFinite : SkipReason::kEmpty;
  }
  const bool other_division =
      std::ranges::any_of(offers_, [&offer = offer](const auto& each) {
        return each.second.first.samples > 0 &&
               each.second.first.division != offer.division;
      });
  if (other_division) return SkipReason::kDivision;
  // A void round would have used the part.
  return shard.is_void ? std::nullopt : std::optional(SkipReason::kLate);
}

void RoundEventLog::AddSkips(const RoundResult& result, const View& view,
                             v1::RoundRecord& record) {
  const auto add = [&](const MemberId& member, SkipReason reason) {
    ++stats_.skipped[static_cast<size_t>(reason)];
    AddSkip(member, reason, record);
  };
  for (const MemberId& member : MembersAt(view, result.step)) {
    for (const ShardResult& shard : result.shards) {
      // This server does not know the member's offers to other servers.
      if (shard.is_void && result.shards.size() > 1) continue;
      const auto reason = ReasonFor(member, shard);
      if (!reason.has_value()) continue;
      add(member, *reason);
      break;
    }
  }
  for (const MemberId& member : lost_) {
    // It may have been lost only after the sum with its part was held.
    const bool used = std::ranges::all_of(
        result.shards,
        [&](const ShardResult& shard) { return IsUsed(member, shard); });
    if (!used) add(member, SkipReason::kLost);
  }
  if (result.is_void()) return;
  for (const MemberId& member : outvoted_) add(member, SkipReason::kOutvoted);
}

std::optional<v1::RoundRecord> RoundEventLog::OnApply(
    const RoundResult& result, const std::optional<View>& view, bool running,
    Instant now, int64_t unix_ms) {
  v1::RoundRecord record;
  record.set_step(result.step);
  *record.mutable_view() = ToProto(result.view);
  record.set_is_void(result.is_void());
  if (first_.has_value()) {
    record.set_seconds(absl::ToDoubleSeconds(now - *first_));
    const auto bound = std::ranges::lower_bound(kRoundBounds, record.seconds());
    ++stats_.durations[bound - kRoundBounds.begin()];
    stats_.seconds += record.seconds();
  }
  record.set_unix_ms(unix_ms);
  if (!record.is_void()) {
    record.set_contributors(
        static_cast<int32_t>(result.shards.front().contributors.size()));
  }
  ++(record.is_void() ? stats_.void_rounds : stats_.committed);
  stats_.last_contributors = record.contributors();

  bool tell = false;
  if (view.has_value() && !MembersAt(*view, result.step).empty()) {
    const WorkerId server = running
                                ? ServerOf(*view, mode_, result.step, 0).worker
                                : view->leveller.worker;
    record.set_server(server.value);
    tell = server == self_.worker;
  }
  if (tell) {
    AddSkips(result, *view, record);
    if (cosine_.has_value()) {
      record.set_cosine(*cosine_);
      stats_.cosine = cosine_;
    }
    if (lost_server_.worker.assigned()) {
      ++stats_.takeovers;
      record.set_lost_server(lost_server_.worker.value);
      record.set_takeover_seconds(absl::ToDoubleSeconds(now - lost_at_));
    }
  }
  first_.reset();
  offers_.clear();
  outvoted_.clear();
  cosine_.reset();
  lost_.clear();
  lost_server_ = {};
  if (!tell) return {};
  return record;
}

}  // namespace paceline
