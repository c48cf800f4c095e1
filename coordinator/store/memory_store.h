// A JobStore that forgets everything with its process: for tests.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/job_store.h"

namespace paceline {

// Thread-compatible.
class MemoryStore final : public JobStore {
 public:
  absl::StatusOr<StoredState> Load() override { return state_; }
  absl::Status Commit(const StoreBatch& batch) override;
  absl::StatusOr<std::vector<StepRecord>> Curve(JobId job, int64_t after_step,
                                                int64_t points) override;
  absl::StatusOr<std::vector<EvaluationRecord>> Evaluations(
      JobId job, int64_t newest) override;
  absl::StatusOr<std::vector<EventRecord>> Events(JobId job, int64_t after,
                                                  int64_t limit) override;
  absl::StatusOr<std::vector<LogRecord>> Logs(JobId job, int64_t after,
                                              int64_t limit) override;

  // Every Commit() from now on fails with `error`; OK ends that.  On any
  // thread.
  void FailWith(absl::Status error) {
    absl::MutexLock lock(&error_mutex_);
    error_ = std::move(error);
  }

 private:
  struct Records {
    std::map<int64_t, StepRecord> steps;
    std::map<int64_t, EvaluationRecord> evaluations;
    std::vector<EventRecord> events;
    std::vector<LogRecord> logs;
  };

  StoredState state_;
  std::map<JobId, Records> records_;
  std::set<std::pair<Incarnation, int64_t>> seen_lines_;
  int64_t sequence_ = 0;
  absl::Mutex error_mutex_;
  absl::Status error_ ABSL_GUARDED_BY(error_mutex_);
};

}  // namespace paceline
