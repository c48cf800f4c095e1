#include "core/round/round_roles.h"

#include <cstddef>

#include "absl/algorithm/container.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

absl::Duration Median(std::vector<absl::Duration> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void Deadline::Add(const std::vector<absl::Duration>& arrivals) {
  // The first part's arrival is where the count begins: it says nothing.
  for (size_t i = 1; i < arrivals.size(); ++i) {
    computed_.reset();
    arrivals_.push_back(arrivals[i]);
    if (arrivals_.size() > static_cast<size_t>(policy_.remembered)) {
      arrivals_.pop_front();
    }
  }
}

absl::Duration Deadline::Get(absl::Duration first) const {
  if (!computed_.has_value()) computed_ = Compute();
  return std::min(std::max({*computed_, policy_.floor, policy_.share * first}),
                  policy_.ceiling);
}

absl::Duration Deadline::Compute() const {
  if (arrivals_.empty()) return policy_.ceiling;
  const absl::Duration median = Median({arrivals_.begin(), arrivals_.end()});
  std::vector<absl::Duration> distances;
  for (const absl::Duration arrival : arrivals_) {
    distances.push_back(absl::AbsDuration(arrival - median));
  }
  return median + policy_.deviations * Median(std::move(distances));
}

// --- Gather
// -------------------------------------------------------------------

bool Gather::Add(const MemberId& from, const PartOffer& offer, Instant now) {
  if (closed_) return false;
  if (!parts_.emplace(from, offer).second) return false;
  if (!first_.has_value()) first_ = now;
  arrivals_.push_back(now - *first_);
  return true;
}

uint64_t Gather::division() const {
  const auto usable = [](const auto& part) { return part.second.samples > 0; };
  const auto first = absl::c_find_if(parts_, usable);
  if (first == parts_.end()) return 0;
  const uint64_t only = first->second.division;
  // Nearly always all parts have one division.
  if (std::all_of(first, parts_.end(), [&](const auto& part) {
        return !usable(part) || part.second.division == only;
      })) {
    return only;
  }
  std::map<uint64_t, int64_t> samples;
  for (const auto& [member, part] : parts_) {
    if (part.samples > 0) samples[part.division] += part.samples;
  }
  // Ties go to the lowest name.
  return absl::c_max_element(
             samples,
             [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

int64_t Gather::usable() const {
  const uint64_t chosen = division();
  return absl::c_count_if(parts_, [chosen](const auto& part) {
    return IsUsable(part.second, chosen);
  });
}

std::optional<Instant> Gather::DueAt(int min_parts,
                                     absl::Duration deadline) const {
  if (closed_ || !first_.has_value() || usable() < min_parts) return {};
  return *first_ + deadline;
}

bool Gather::TryClose(int min_parts, absl::Duration deadline, Instant now) {
  if (closed_) return false;
  const std::optional<Instant> due = DueAt(min_parts, deadline);
  const bool all = parts_.size() == members_.size();
  if (!all && (!due.has_value() || now < *due)) return false;
  // It is unknown how late the missing parts are.  Without them the deadline
  // would adapt to the fast members alone, and shut the others out for good.
  const size_t missing = members_.size() - parts_.size();
  arrivals_.insert(arrivals_.end(), missing, 2 * (now - *first_));
  closed_ = true;
  if (usable() < min_parts) {
    SetResult(0, 0);
    return true;
  }
  const uint64_t chosen = division();
  // By id, never in order of arrival, so that the sum always has the same
  // bytes.
  for (const auto& [member, part] : parts_) {
    if (IsUsable(part, chosen)) contributors_.push_back({member, part.samples});
  }
  return true;
}

void Gather::SetResult(uint64_t hash, int64_t divisor) {
  PACELINE_CHECK(closed_ && !void_, "a sum of a round that is open or void");
  void_ = divisor == 0;
  ShardResult& result = result_.emplace();
  result.shard = shard_;
  result.is_void = void_;
  result.arrivals = arrivals_;
  if (void_) return;
  result.hash = hash;
  result.contributors = contributors_;
  result.divisor = divisor;
}

// --- Leveller
// -----------------------------------------------------------------

bool Leveller::OnAnswer(const MemberId& from, const Answer& answer) {
  if (phase_ != Phase::kAsking || !Contains(view_, from)) return false;
  const auto [known, is_new] = answers_.emplace(from, answer);
  if (!is_new && answer.next > known->second.next) known->second = answer;
  if (answers_.size() < view_.members.size()) return false;
  Decide();
  return true;
}

void Leveller::Decide() {
  for (const auto& [member, answer] : answers_) {
    if (answer.next > applied_ || !furthest_.worker.assigned()) {
      applied_ = answer.next;
      applied_hash_ = 0;
      furthest_ = member;
    }
    if (answer.next == applied_ && answer.last_hash != 0) {
      applied_hash_ = answer.last_hash;
    }
  }
  for (const auto& [member, answer] : answers_) {
    if (!answer.held.has_value() || answer.held->step != applied_) continue;
    // The result of the highest view counts.  Results of two views never differ
    // while the leveller waits for every member, and members adopt a view
    // before they answer; this does not rely on it.
    if (target_.has_value() && answer.held->view <= target_->view) continue;
    target_ = answer.held;
    holder_ = member;
  }
  phase_ = target_.has_value() ? Phase::kFetching : Phase::kDone;
}

bool Leveller::OnApplied(int64_t next, uint64_t hash) {
  if (phase_ != Phase::kFetching || next != target_->step + 1 ||
      hash != target_->hash()) {
    return false;
  }
  applied_ = next;
  applied_hash_ = hash;
  target_.reset();
  phase_ = Phase::kDone;
  return true;
}

bool Leveller::OnHold(const MemberId& from, uint64_t hash) {
  if (phase_ != Phase::kSpreading || hash != target_->hash()) return false;
  holds_.insert(from);
  if (!Missing().empty()) return false;
  phase_ = Phase::kDone;
  return true;
}

std::vector<MemberId> Leveller::Missing() const {
  std::vector<MemberId> missing;
  if (phase_ == Phase::kAsking) {
    for (const ViewMember& member : view_.members) {
      if (answers_.find(member.id) == answers_.end()) {
        missing.push_back(member.id);
      }
    }
  } else if (phase_ == Phase::kFetching) {
    missing.push_back(holder_);
  } else if (phase_ == Phase::kSpreading) {
    for (const MemberId& member : MembersAt(view_, target_->step)) {
      if (holds_.find(member) == holds_.end()) missing.push_back(member);
    }
  }
  return missing;
}

}  // namespace paceline
