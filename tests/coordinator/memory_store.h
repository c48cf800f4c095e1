// A store that ends with its object, and that fails when a test wants it to.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/jobs/job_store.h"
#include "coordinator/store/sqlite_store.h"

namespace paceline {

// Thread-compatible, but for FailWith().
class MemoryStore final : public JobStore {
 public:
  // That has these already.
  explicit MemoryStore(const std::vector<StoreBatch>& batches = {}) {
    for (const StoreBatch& batch : batches) {
      store_->Commit(batch).IgnoreError();
    }
  }

  absl::StatusOr<StoredState> Load() override { return store_->Load(); }
  absl::Status Commit(const StoreBatch& batch) override {
    {
      const absl::MutexLock lock(&mutex_);
      if (!error_.ok()) return error_;
    }
    return store_->Commit(batch);
  }
  absl::Status Upkeep() override { return store_->Upkeep(); }
  absl::StatusOr<std::vector<JobRecord>> JobsBelow(JobId below, int64_t limit,
                                                   int64_t bytes) override {
    return store_->JobsBelow(below, limit, bytes);
  }
  absl::StatusOr<std::vector<JobRecord>> LastEnded(int64_t limit) override {
    return store_->LastEnded(limit);
  }
  absl::StatusOr<JobId> FindRequest(const std::string& request_id) override {
    return store_->FindRequest(request_id);
  }
  absl::StatusOr<StoredCurve> Curve(JobId job, int64_t after_step,
                                    int64_t points) override {
    return store_->Curve(job, after_step, points);
  }
  absl::StatusOr<std::vector<v1::EvaluationRecord>> Evaluations(
      JobId job, int64_t newest) override {
    return store_->Evaluations(job, newest);
  }
  absl::StatusOr<StoredRows> RowsAfter(JobId job, int64_t after_step,
                                       int64_t limit) override {
    return store_->RowsAfter(job, after_step, limit);
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
