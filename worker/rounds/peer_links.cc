#include "worker/rounds/peer_links.h"

#include <algorithm>
#include <iterator>

namespace paceline {

void PeerLinks::OnLink(const MemberId& peer, bool up, bool refused,
                       Instant now) {
  Link& link = links_[peer];
  if (up) {
    link.broken.reset();
    link.refused = false;
    return;
  }
  if (!link.broken.has_value()) link.broken = now;
  link.refused = link.refused || refused;
}

void PeerLinks::Retain(const std::vector<GroupWorker>& peers) {
  std::erase_if(links_, [&peers](const auto& each) {
    return std::ranges::count(peers, each.first, &GroupWorker::id) == 0;
  });
}

bool PeerLinks::IsDead(const MemberId& peer) const {
  const auto found = links_.find(peer);
  return found != links_.end() && found->second.refused;
}

std::optional<Instant> PeerLinks::BrokenSince(const MemberId& peer) const {
  const auto found = links_.find(peer);
  return found == links_.end() ? std::nullopt : found->second.broken;
}

std::vector<PeerReport> PeerLinks::Report(Instant now,
                                          absl::Duration lease) const {
  std::vector<PeerReport> reports;
  for (const auto& [peer, link] : links_) {
    PeerReport each;
    each.peer = peer;
    each.refused = link.refused;
    if (link.broken.has_value()) each.broken = now - *link.broken;
    if (link.owing.has_value()) {
      each.owing = std::max(now - *link.owing, absl::ZeroDuration()) + lease;
    }
    reports.push_back(each);
  }
  return reports;
}

void Arrivals::OnBytes(const MemberId& from, Instant now) {
  absl::MutexLock lock(&mutex_);
  newest_[from] = now;
}

void Arrivals::AddTo(std::vector<PeerReport>& peers, Instant now,
                     absl::Duration lease) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [from, when] : newest_) {
    const absl::Duration since = std::max(now - when, absl::Milliseconds(1));
    if (since >= lease) continue;
    auto found = std::ranges::find(peers, from, &PeerReport::peer);
    if (found == peers.end()) {
      peers.push_back({.peer = from});
      found = std::prev(peers.end());
    }
    found->owing = std::max(found->owing, since);
  }
}

}  // namespace paceline
