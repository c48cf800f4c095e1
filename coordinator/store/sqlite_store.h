// The JobStore that lasts: one SQLite file in write-ahead mode.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/job_store.h"
#include "coordinator/store/sqlite.h"

namespace paceline {

// Thread-compatible.  A durable batch is on the disk when Commit() returns
// (synchronous=FULL); any other one survives the death of the process, and a
// power cut takes at most the last moments (synchronous=NORMAL).
class SqliteStore final : public JobStore {
 public:
  // Opens or makes `path` and brings its tables up to date.
  //
  // Errors: DataLoss  not a data base, or a damaged one; those of Migrate()
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(
      const std::string& path, SpecCodec codec);

  absl::StatusOr<StoredState> Load() override;
  absl::Status Commit(const StoreBatch& batch) override;
  absl::StatusOr<std::vector<StepRecord>> Curve(JobId job, int64_t after_step,
                                                int64_t points) override;
  absl::StatusOr<std::vector<EvaluationRecord>> Evaluations(
      JobId job, int64_t newest) override;
  absl::StatusOr<std::vector<EventRecord>> Events(JobId job, int64_t after,
                                                  int64_t limit) override;
  absl::StatusOr<std::vector<LogRecord>> Logs(JobId job, int64_t after,
                                              int64_t limit) override;

 private:
  SqliteStore(std::unique_ptr<Database> database, SpecCodec codec)
      : database_(std::move(database)), codec_(std::move(codec)) {}

  absl::Status Write(const StoreBatch& batch);
  absl::Status PutWorker(WorkerId id, const Registration& worker);
  absl::Status PutJob(const JobRecord& job);
  absl::Status PutPlan(const JobRecord& job);
  absl::Status PutJobWorker(JobId job, const JobWorker& worker);
  absl::Status AddRecords(JobId job, const StoreBatch::Records& records);
  absl::Status AddLogs(JobId job, const std::vector<LogRecord>& logs);
  absl::Status Delete(JobId job);

  absl::Status LoadWorkers(StoredState& state);
  absl::Status LoadJobs(StoredState& state);
  absl::Status LoadPlan(JobRecord& job);
  absl::Status LoadJobWorkers(JobRecord& job);

  const std::unique_ptr<Database> database_;
  const SpecCodec codec_;
};

}  // namespace paceline
