#include "core/round/view.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/schedule/route.h"

namespace paceline {

std::string ViewText(ViewId id) {
  return absl::StrCat(id.term, ".", id.counter);
}

absl::Status CheckView(const View& view) {
  const std::string name = absl::StrCat("view ", ViewText(view.id));
  if (view.members.empty()) return InvalidArgument(name, " has no members");
  for (size_t i = 0; i + 1 < view.members.size(); ++i) {
    const WorkerId here = view.members[i].id.worker;
    const WorkerId next = view.members[i + 1].id.worker;
    if (here < next) continue;
    return InvalidArgument(name, " lists worker ", next.value, " after worker ",
                           here.value, ": members come by id, each once");
  }
  if (!Contains(view, view.leveller)) {
    return InvalidArgument(name, " has worker ", view.leveller.worker.value,
                           " level it, which is not its member");
  }
  return absl::OkStatus();
}

bool Contains(const View& view, const MemberId& member) {
  return std::ranges::count(view.members, member, &ViewMember::id) > 0;
}

std::vector<MemberId> MembersAt(const View& view, int64_t step) {
  std::vector<MemberId> members;
  for (const ViewMember& member : view.members) {
    if (member.from_step <= step) members.push_back(member.id);
  }
  return members;
}

uint64_t DivisionOf(const View& view, int64_t step) {
  uint64_t name = 0;
  for (const ViewMember& member : view.members) {
    if (member.from_step > step) continue;
    name = MixSeed({name, static_cast<uint64_t>(member.id.worker.value),
                    member.id.incarnation.value,
                    std::bit_cast<uint64_t>(member.share)});
  }
  return name;
}

std::vector<int> MicroBatchesOf(const View& view, int64_t step,
                                const MemberId& self, int micro_batches) {
  std::vector<double> shares;
  std::optional<int> own;
  for (const ViewMember& member : view.members) {
    if (member.from_step > step) continue;
    if (member.id == self) own = static_cast<int>(shares.size());
    shares.push_back(member.share);
  }
  std::vector<int> mine;
  if (!own.has_value()) return mine;
  const RouteTable route = MakeRouteTable(shares);
  for (int i = 0; i < micro_batches; ++i) {
    if (route.ReplicaOf(i) == *own) mine.push_back(i);
  }
  return mine;
}

MemberId ServerOf(const View& view, ServerMode mode, int64_t step, int shard) {
  const auto counted = [step](const ViewMember& member) {
    return member.from_step <= step;
  };
  const auto members = std::ranges::count_if(view.members, counted);
  PACELINE_CHECK(members > 0, "a step without members has no server");
  int64_t turn = (mode == ServerMode::kRolling ? step : 0) + shard;
  turn %= members;
  // Makes no list, since members call this with every message.
  for (const ViewMember& member : view.members) {
    if (counted(member) && turn-- == 0) return member.id;
  }
  return view.members.front().id;
}

// --- ViewKeeper
// ---------------------------------------------------------------

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
  // It is out in any case.
  std::erase_if(view_->members,
                [&](const ViewMember& each) { return each.id == member; });
  if (!CheckLost(actions)) Decide(view_->members, actions);
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
  int64_t furthest = next;
  for (const ViewMember& each : view_->members) {
    if (each.id.worker == member.worker) return;
    // Not next_[]: a member without a report must stay unknown to CheckLost().
    const auto known = next_.find(each.id);
    if (known != next_.end()) furthest = std::max(furthest, known->second);
  }
  std::vector<ViewMember> members = view_->members;
  // Beyond the step that may be open, and the step after it.
  members.push_back({member, furthest + 2, ShareOf(member)});
  std::ranges::sort(members, {}, &ViewMember::id);
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
  return std::ranges::any_of(view_->members, [this](const ViewMember& member) {
    return taking_part_.contains(member.id);
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
