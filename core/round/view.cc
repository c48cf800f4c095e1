#include "core/round/view.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>

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
  return std::any_of(
      view.members.begin(), view.members.end(),
      [&member](const ViewMember& each) { return each.id == member; });
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
  const auto members =
      std::count_if(view.members.begin(), view.members.end(), counted);
  PACELINE_CHECK(members > 0, "a step without members has no server");
  int64_t turn = (mode == ServerMode::kRolling ? step : 0) + shard;
  turn %= members;
  // Makes no list, since members call this with every message.
  for (const ViewMember& member : view.members) {
    if (counted(member) && turn-- == 0) return member.id;
  }
  return view.members.front().id;
}

}  // namespace paceline
