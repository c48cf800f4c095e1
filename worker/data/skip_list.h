// The samples of a split that turned out to be unreadable.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace paceline {

// Thread-safe.
class SkipList {
 public:
  // samples: of the split, which may lose a tenth of them, and two in any case
  // (but not all).
  explicit SkipList(int64_t samples) : samples_(samples) {}

  bool Contains(int32_t sample) const;

  int64_t count() const;

  // Notes that `file`, which is the sample, cannot be read, and logs a warning
  // with the count so far; the second time changes nothing.
  // Errors: DataLoss  more of the split is gone
  absl::Status Add(int32_t sample, const std::string& file,
                   const absl::Status& why);

 private:
  const int64_t samples_;
  mutable absl::Mutex mutex_;
  std::set<int32_t> skipped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
