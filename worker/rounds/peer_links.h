// A member remembers the state of its links to the others, and whose results
// are just arriving.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/cluster/member_report.h"
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
  void SetOwing(const MemberId& peer, Instant now);
  void ClearOwing();

  // No process listens at its address, or another one does.
  bool IsDead(const MemberId& peer) const;

  // Nothing gets there just now, as far as one knows.
  bool IsBroken(const MemberId& peer) const;

  // lease: what is owed was owed that long when it was said.
  std::vector<PeerReport> Report(Instant now, absl::Duration lease) const;

 private:
  struct Link {
    std::optional<Instant> broken;
    bool refused = false;
    std::optional<Instant> owing;
  };

  std::map<MemberId, Link> links_;
};

// A result may take longer to arrive than a lease, over a slow link: until it
// is here its receiver says nothing, and would be taken for one that has died.
// Thread-safe.
class Arrivals {
 public:
  // More bytes of `from` are here.
  void OnBytes(const MemberId& from, Instant now);

  // To a member's report: it waits for the rest of what came within the last
  // `lease`.  Less than that is an excuse and no complaint (eviction.h).
  void AddTo(std::vector<PeerReport>& peers, Instant now,
             absl::Duration lease) const;

 private:
  mutable absl::Mutex mutex_;
  std::map<MemberId, Instant> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
