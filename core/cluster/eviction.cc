#include "core/cluster/eviction.h"

#include <set>
#include <utility>

#include "absl/strings/str_format.h"

namespace paceline {
namespace {

using Pair = std::pair<MemberId, MemberId>;

// Links of which one end says that they are broken, the lower id first.
std::set<Pair> CutLinks(const View& view,
                        const std::map<MemberId, MemberReport>& reports) {
  std::set<Pair> cut;
  for (const auto& [member, report] : reports) {
    for (const PeerReport& peer : report.peers) {
      if (peer.broken <= absl::ZeroDuration() && !peer.refused) continue;
      if (!Contains(view, peer.peer)) continue;
      cut.insert(std::minmax(member, peer.peer));
    }
  }
  return cut;
}

int WorkingLinks(const View& view, const std::set<Pair>& cut,
                 const MemberId& member) {
  int working = 0;
  for (const ViewMember& other : view.members) {
    if (other.id == member) continue;
    if (cut.count(std::minmax(member, other.id)) == 0) ++working;
  }
  return working;
}

// Of the two ends of a cut link.
MemberId Worse(const View& view, const std::set<Pair>& cut, const Pair& link) {
  const int first = WorkingLinks(view, cut, link.first);
  const int second = WorkingLinks(view, cut, link.second);
  if (first != second) return first < second ? link.first : link.second;
  return std::max(link.first, link.second);
}

}  // namespace

std::optional<Eviction> DecideEviction(
    const View& view, const std::map<MemberId, MemberReport>& reports,
    absl::Duration lease) {
  std::map<Pair, absl::Duration> owing;  // (who says so, of whom)
  std::set<MemberId> waiting;
  for (const auto& [member, report] : reports) {
    if (!Contains(view, member) || report.view != view.id) continue;
    for (const PeerReport& peer : report.peers) {
      if (peer.owing < lease || peer.peer == member) continue;
      if (!Contains(view, peer.peer)) continue;
      owing[{member, peer.peer}] = peer.owing;
      waiting.insert(member);
    }
  }
  if (owing.empty()) return std::nullopt;
  auto chosen = owing.begin();
  for (auto it = owing.begin(); it != owing.end(); ++it) {
    if (waiting.count(it->first.second) > 0) continue;
    chosen = it;
    break;
  }
  const auto& [pair, since] = *chosen;
  const std::set<Pair> cut = CutLinks(view, reports);
  const double seconds = absl::ToDoubleSeconds(since);
  if (cut.count(std::minmax(pair.first, pair.second)) == 0) {
    return Eviction{pair.second, pair.first,
                    absl::StrFormat("owes an answer for %.1f s", seconds)};
  }
  const MemberId gone = Worse(view, cut, pair);
  return Eviction{
      gone, gone == pair.first ? pair.second : pair.first,
      absl::StrFormat("its link is cut, and the answer that is owed over it is "
                      "%.1f s late",
                      seconds)};
}

}  // namespace paceline
