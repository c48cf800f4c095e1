// A store that ends with its object, and that fails when a test wants it to.
#pragma once

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/store/sqlite_store.h"

namespace paceline {

// Thread-compatible, but for FailWith().
class MemoryStore final : public SqliteStore {
 public:
  // That has these already.
  explicit MemoryStore(const std::vector<StoreBatch>& batches = {})
      : SqliteStore(std::move(**SqliteStore::Open(":memory:"))) {
    for (const StoreBatch& batch : batches) {
      SqliteStore::Commit(batch).IgnoreError();
    }
  }

  absl::Status Commit(const StoreBatch& batch) override {
    {
      const absl::MutexLock lock(&mutex_);
      if (!error_.ok()) return error_;
    }
    return SqliteStore::Commit(batch);
  }

  // Every Commit() from now on fails with `error`; OK ends that.  On any
  // thread.
  void FailWith(absl::Status error) {
    const absl::MutexLock lock(&mutex_);
    error_ = std::move(error);
  }

 private:
  absl::Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
