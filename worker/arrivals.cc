#include "worker/arrivals.h"

#include <algorithm>
#include <iterator>

namespace paceline {

void Arrivals::OnBytes(const MemberId& from, Instant now) {
  absl::MutexLock lock(&mutex_);
  newest_[from] = now;
}

void Arrivals::AddTo(std::vector<PeerReport>& peers, Instant now,
                     absl::Duration lease) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& arriving : newest_) {
    // A name of its own: clang 14 lets no lambda capture a structured binding.
    const MemberId& from = arriving.first;
    const absl::Duration since =
        std::max(now - arriving.second, absl::Milliseconds(1));
    if (since >= lease) continue;
    auto found = std::find_if(
        peers.begin(), peers.end(),
        [&from](const PeerReport& peer) { return peer.peer == from; });
    if (found == peers.end()) {
      peers.push_back({.peer = from});
      found = std::prev(peers.end());
    }
    found->owing = std::max(found->owing, since);
  }
}

}  // namespace paceline
