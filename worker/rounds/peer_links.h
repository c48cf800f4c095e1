// PeerLinks keeps the state of a member's links to the others; Arrivals keeps
// the members whose bytes are just arriving.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/cluster/eviction.h"
#include "core/cluster/run_order.h"
#include "core/round/view.h"

namespace paceline {

// Thread-compatible.
class PeerLinks {
 public:
  void OnLink(const MemberId& peer, bool up, bool refused, Instant now);
  // Forgets the links to processes that are not in `peers`.
  void Retain(const std::vector<GroupWorker>& peers);
  // SetOwing: the peer has owed an answer for a lease.  ClearOwing: no peer
  // does.
  void SetOwing(const MemberId& peer, Instant now) { links_[peer].owing = now; }
  void ClearOwing() {
    for (auto& [peer, link] : links_) link.owing.reset();
  }

  // No process listens at its address, or another one does.
  bool IsDead(const MemberId& peer) const;

  // Since when the link is known to be broken; nothing: it is not.
  std::optional<Instant> BrokenSince(const MemberId& peer) const;

  // lease: how long the answers had been owed at SetOwing().
  std::vector<PeerReport> Report(Instant now, absl::Duration lease) const;

 private:
  struct Link {
    std::optional<Instant> broken;
    bool refused = false;
    std::optional<Instant> owing;
  };

  std::map<MemberId, Link> links_;
};

// Over a slow link a result may take longer than a lease to arrive.  Until then
// its receiver sends nothing, and would be taken for dead.  Thread-safe.
class Arrivals {
 public:
  // More bytes of `from` are here.
  void OnBytes(const MemberId& from, Instant now);

  // Adds to a member's report that it waits for the rest of bytes that came
  // within the last `lease`.  So short a wait excuses the member, and accuses
  // no other (eviction.h).
  void AddTo(std::vector<PeerReport>& peers, Instant now,
             absl::Duration lease) const;

 private:
  mutable absl::Mutex mutex_;
  std::map<MemberId, Instant> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
