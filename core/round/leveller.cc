#include "core/round/leveller.h"

namespace paceline {

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

void Leveller::OnBytes() {
  if (phase_ == Phase::kFetching) phase_ = Phase::kSpreading;
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
