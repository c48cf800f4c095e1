#include "core/round/view_keeper.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"

namespace paceline {

void ViewKeeper::Begin(std::vector<MemberId> members, int64_t next,
                       ViewActions& actions) {
  PACELINE_CHECK(!view_.has_value(), "a group begins once");
  std::sort(members.begin(), members.end());
  std::vector<ViewMember> all;
  for (const MemberId& member : members) {
    next_[member] = next;
    taking_part_.insert(member);
    all.push_back({member, next, ShareOf(member)});
  }
  Decide(std::move(all), actions);
}

void ViewKeeper::OnReport(const MemberId& member, int64_t next, ViewId adopted,
                          bool has_taken_part, ViewActions& actions) {
  if (has_taken_part) taking_part_.insert(member);
  int64_t& known = next_[member];
  known = std::max(known, next);
  if (CheckLost(actions)) return;
  if (view_.has_value() && next_.count(view_->leveller) > 0 &&
      taking_part_.count(view_->leveller) == 0 && HasMember()) {
    return Decide(view_->members, actions);  // the leveller is a joiner
  }
  if (durable_.has_value() && adopted < durable_->id &&
      Contains(*durable_, member)) {
    actions.push_back(SendView{member, *durable_});
  }
}

void ViewKeeper::OnLost(const MemberId& member, ViewActions& actions) {
  gone_.insert(member);
  if (!view_.has_value() || !Contains(*view_, member)) return;
  std::vector<ViewMember> others;
  for (const ViewMember& each : view_->members) {
    if (each.id != member) others.push_back(each);
  }
  view_->members = others;  // it is out in any case
  if (CheckLost(actions)) return;
  Decide(std::move(others), actions);
}

// A group of joiners alone may lack a step that a lost member has applied.
bool ViewKeeper::CheckLost(ViewActions& actions) {
  if (lost_ || !view_.has_value()) return lost_;
  for (const ViewMember& member : view_->members) {
    const bool known = next_.find(member.id) != next_.end();
    if (!known || taking_part_.count(member.id) > 0) return false;
  }
  lost_ = true;
  actions.push_back(GroupLost{});
  return true;
}

void ViewKeeper::OnListenerLevel(const MemberId& member, int64_t next,
                                 ViewActions& actions) {
  if (!view_.has_value() || lost_ || gone_.count(member) > 0 || !HasMember()) {
    return;
  }
  for (const ViewMember& each : view_->members) {
    if (each.id.worker == member.worker) return;
  }
  int64_t furthest = next;
  for (const ViewMember& each : view_->members) {
    // Not next_[]: a member without a report must stay unknown to CheckLost().
    const auto known = next_.find(each.id);
    if (known != next_.end()) furthest = std::max(furthest, known->second);
  }
  std::vector<ViewMember> members = view_->members;
  // Beyond the step that may be open, and the step after it.
  members.push_back({member, furthest + 2, ShareOf(member)});
  std::sort(
      members.begin(), members.end(),
      [](const ViewMember& a, const ViewMember& b) { return a.id < b.id; });
  next_[member] = next;
  Decide(std::move(members), actions);
}

MemberId ViewKeeper::PickLeveller(
    const std::vector<ViewMember>& members) const {
  for (const ViewMember& member : members) {
    if (taking_part_.count(member.id) > 0) return member.id;
  }
  // A coordinator that has just started picks a member that has not reported.
  // OnReport() corrects a wrong choice.
  for (const ViewMember& member : members) {
    if (next_.find(member.id) == next_.end()) return member.id;
  }
  return members.front().id;
}

double ViewKeeper::ShareOf(const MemberId& member) const {
  const auto found = shares_.find(member.worker);
  return found == shares_.end() ? 1 : found->second;
}

bool ViewKeeper::HasMember() const {
  return std::any_of(view_->members.begin(), view_->members.end(),
                     [this](const ViewMember& member) {
                       return taking_part_.count(member.id) > 0;
                     });
}

void ViewKeeper::Decide(std::vector<ViewMember> members, ViewActions& actions) {
  View view;
  view.id = {term_, 1};
  if (view_.has_value() && view_->id.term == term_) {
    view.id.counter = view_->id.counter + 1;
  }
  view.leveller = PickLeveller(members);
  view.members = std::move(members);
  view_ = view;
  actions.push_back(StoreView{view});
}

void ViewKeeper::OnStored(ViewId id, ViewActions& actions) {
  // A later view is being stored, and replaces this one.
  if (!view_.has_value() || view_->id != id) return;
  durable_ = view_;
  for (const ViewMember& member : view_->members) {
    actions.push_back(SendView{member.id, *view_});
  }
}

}  // namespace paceline
