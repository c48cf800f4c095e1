#include "core/cluster/eviction.h"

#include <iterator>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"

namespace paceline {
namespace {

// A thread may handle nothing for so many times its slowest answer.
constexpr int kAnswers = 5;

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

// Returns the end of a cut link that has fewer working links; of equal ones,
// the one with the higher id.
MemberId Worse(const View& view, const std::set<Pair>& cut, const Pair& link) {
  const int first = WorkingLinks(view, cut, link.first);
  const int second = WorkingLinks(view, cut, link.second);
  if (first != second) return first < second ? link.first : link.second;
  return std::max(link.first, link.second);
}

// For how long the link is broken, as `from` sees it.
absl::Duration BrokenFor(const std::map<MemberId, MemberReport>& reports,
                         const MemberId& from, const MemberId& to) {
  const auto report = reports.find(from);
  if (report == reports.end()) return absl::ZeroDuration();
  for (const PeerReport& peer : report->second.peers) {
    if (peer.peer == to) return peer.broken;
  }
  return absl::ZeroDuration();
}

// For how long `accuser` has been owed something.
absl::Duration OwingOf(const MemberId& accuser, const PeerReport& accused,
                       const std::map<MemberId, MemberReport>& reports) {
  if (!accused.awaited) return accused.owing;
  return std::max({accused.owing, accused.broken,
                   BrokenFor(reports, accused.peer, accuser)});
}

// For how long the accused's thread hangs: 0: it answers; nothing: not known.
std::optional<absl::Duration> HangsFor(
    const std::map<MemberId, MemberReport>& reports, const MemberId& accused,
    absl::Duration lease, absl::Duration delay) {
  const auto found = reports.find(accused);
  if (found == reports.end()) return std::nullopt;
  const std::optional<absl::Duration> idle = found->second.idle;
  if (!idle.has_value()) return std::nullopt;
  const bool hangs =
      *idle >= std::max({lease, kAnswers * found->second.slowest, delay});
  return hangs ? *idle : absl::ZeroDuration();
}

using Accusation = std::pair<Pair, absl::Duration>;

// due_later: some wait for less than a lease yet.
std::optional<Accusation> Choose(const std::map<Pair, absl::Duration>& owing,
                                 const std::set<MemberId>& waiting,
                                 const std::set<Pair>& cut, bool due_later) {
  if (owing.empty()) return std::nullopt;
  for (const Accusation each : owing) {
    if (waiting.count(each.first.second) == 0) return each;
  }
  for (const Accusation each : owing) {
    const auto& [accuser, accused] = each.first;
    if (cut.count(std::minmax(accuser, accused)) > 0) return each;
  }
  // A member that is not due yet may be the one that holds up all the others.
  if (due_later) return std::nullopt;
  return *owing.begin();
}

}  // namespace

std::optional<Eviction> DecideEviction(
    const View& view, const std::map<MemberId, MemberReport>& reports,
    absl::Duration lease, absl::Duration delay) {
  const std::set<Pair> cut = CutLinks(view, reports);
  std::map<Pair, absl::Duration> owing;  // (who says so, of whom)
  std::set<MemberId> waiting;
  bool due_later = false;
  for (const auto& [member, report] : reports) {
    if (!Contains(view, member) || report.view != view.id) continue;
    for (const PeerReport& peer : report.peers) {
      const auto hangs = HangsFor(reports, peer.peer, lease, delay);
      absl::Duration since = OwingOf(member, peer, reports);
      // A thread that hangs never sends it.
      if (peer.awaited) since = std::max(since, hangs.value_or(since));
      if (since <= absl::ZeroDuration() || peer.peer == member) continue;
      if (!Contains(view, peer.peer)) continue;
      waiting.insert(member);
      due_later = due_later || since < lease;
      if (since < lease) continue;
      const bool is_cut = cut.count(std::minmax(member, peer.peer)) > 0;
      if (!is_cut && hangs == absl::ZeroDuration()) continue;
      owing[{member, peer.peer}] = since;
    }
  }
  const auto chosen = Choose(owing, waiting, cut, due_later);
  if (!chosen.has_value()) return std::nullopt;
  const auto& [pair, since] = *chosen;
  const double seconds = absl::ToDoubleSeconds(since);
  if (cut.count(std::minmax(pair.first, pair.second)) == 0) {
    std::string why = absl::StrFormat("owes an answer for %.1f s", seconds);
    const auto report = reports.find(pair.second);
    if (report != reports.end() && report->second.idle.has_value()) {
      absl::StrAppendFormat(&why, " and has handled nothing for %.1f s",
                            absl::ToDoubleSeconds(*report->second.idle));
    }
    return Eviction{pair.second, pair.first, std::move(why)};
  }
  const MemberId gone = Worse(view, cut, pair);
  return Eviction{
      gone, gone == pair.first ? pair.second : pair.first,
      absl::StrFormat("its link is cut, and the answer that is owed over it is "
                      "%.1f s late",
                      seconds)};
}

void AddAwaited(const std::vector<MemberId>& awaited,
                std::vector<PeerReport>& peers) {
  for (const MemberId& member : awaited) {
    auto found = absl::c_find_if(
        peers, [&](const PeerReport& peer) { return peer.peer == member; });
    if (found == peers.end()) {
      peers.push_back({.peer = member});
      found = std::prev(peers.end());
    }
    found->awaited = true;
  }
}

void MemberWork::OnReport(bool is_running, int64_t its_turn,
                          int64_t its_progress, Instant now) {
  if (its_progress != progress || is_running != running || its_turn != turn) {
    Excuse(now);
  }
  running = is_running;
  turn = its_turn;
  progress = its_progress;
}

bool IsHung(const MemberWork& work, absl::Duration bound) {
  return work.running && work.turn > 0 && work.IsIdle(bound);
}

namespace {

// Null: not one to be judged.
const MemberWork* WorkOf(const std::map<MemberId, MemberWork>& work,
                         const ViewMember& member) {
  const auto found = work.find(member.id);
  if (found == work.end() || !found->second.running ||
      found->second.next < member.from_step) {
    return nullptr;
  }
  return &found->second;
}

}  // namespace

std::optional<Hang> DecideHang(const View& view,
                               const std::map<MemberId, MemberWork>& work,
                               absl::Duration bound) {
  // Where a round waits for all parts nobody goes on; but who has handed its
  // own in for so long has computed all of it meanwhile.
  const bool somebody_waits =
      absl::c_any_of(view.members, [&](const ViewMember& member) {
        const MemberWork* const each = WorkOf(work, member);
        return each != nullptr && each->turn == 0 && each->IsIdle(bound);
      });
  for (const ViewMember& member : view.members) {
    const MemberWork* const each = WorkOf(work, member);
    if (each == nullptr) continue;
    const bool left_behind = each->left_behind.has_value() &&
                             each->heard - *each->left_behind >= bound;
    if (left_behind || (IsHung(*each, bound) && somebody_waits)) {
      return Hang{member.id, each->heard - each->progress_since};
    }
  }
  return std::nullopt;
}

MismatchVerdict DecideMismatch(const View& view,
                               const std::map<MemberId, uint64_t>& states) {
  std::map<uint64_t, size_t> camps;
  for (const auto& [member, hash] : states) {
    if (hash != 0 && Contains(view, member)) ++camps[hash];
  }
  MismatchVerdict verdict;
  if (camps.size() < 2) return verdict;
  for (const auto& [hash, members] : camps) {
    verdict.majority = std::max(verdict.majority, members);
  }
  const auto is_most = [&](const auto& camp) {
    return camp.second == verdict.majority;
  };
  verdict.torn = absl::c_count_if(camps, is_most) > 1;
  if (verdict.torn) return verdict;
  for (const auto& [member, hash] : states) {
    if (hash != 0 && Contains(view, member) &&
        camps.at(hash) < verdict.majority) {
      verdict.minority.push_back(member);
    }
  }
  return verdict;
}

}  // namespace paceline
