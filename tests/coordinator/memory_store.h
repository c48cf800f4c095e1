// A store that ends with its object, and that fails when a test wants it to.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/job_store.h"
#include "coordinator/store/sqlite_store.h"

namespace paceline {

// Thread-compatible, but for FailWith().
class MemoryStore final : public JobStore {
 public:
  absl::StatusOr<StoredState> Load() override { return store_->Load(); }
  absl::Status Commit(const StoreBatch& batch) override {
    {
      const absl::MutexLock lock(&mutex_);
      if (!error_.ok()) return error_;
    }
    return store_->Commit(batch);
  }
  absl::StatusOr<std::vector<v1::StepRecord>> Curve(JobId job,
                                                    int64_t after_step,
                                                    int64_t points) override {
    return store_->Curve(job, after_step, points);
  }
  absl::StatusOr<std::vector<v1::EvaluationRecord>> Evaluations(
      JobId job, int64_t newest) override {
    return store_->Evaluations(job, newest);
  }
  absl::StatusOr<std::vector<v1::JobEvent>> Events(JobId job, int64_t after,
                                                   int64_t limit) override {
    return store_->Events(job, after, limit);
  }
  absl::StatusOr<std::vector<v1::JobEvent>> NewestEvents(
      int64_t limit) override {
    return store_->NewestEvents(limit);
  }
  absl::StatusOr<std::vector<v1::LogLine>> Logs(JobId job, int64_t after,
                                                int64_t limit) override {
    return store_->Logs(job, after, limit);
  }

  // Every Commit() from now on fails with `error`; OK ends that.  On any
  // thread.
  void FailWith(absl::Status error) {
    const absl::MutexLock lock(&mutex_);
    error_ = std::move(error);
  }

 private:
  const std::unique_ptr<SqliteStore> store_ = *SqliteStore::Open(":memory:");
  absl::Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
