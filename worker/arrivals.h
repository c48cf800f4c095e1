// Whose results and copies are just arriving at a member of a round group.
#pragma once

#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/cluster/run_report.h"

namespace paceline {

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
