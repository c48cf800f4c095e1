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
//
// Rows are serialized messages of paceline.v1; a column beside a message is
// there because a query needs it.
//
//   jobs     Job, by id
//   records  v1::StepRecord (kind 1) and v1::EvaluationRecord (kind 2), by step
//   events   JobEvent, in the order of their sequence
//   logs     LogLine, in the order of their sequence
//   kv       worker/ID Registration, drained/ID, group/JOB StoredGroup,
//            token/ID JoinToken, revoked/ROLE/NAME a time, profile/...
//            DeviceProfile, link/FROM/TO LinkMeasurement, and the numbers
//            next_job and term
class SqliteStore final : public JobStore {
 public:
  // Opens or makes `path`; ":memory:" is a store that ends with its object.
  //
  // Errors: DataLoss            it is no store of ours, or a damaged one
  //         FailedPrecondition  another version of the program has written it;
  //                             the file stays as it is
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(
      const std::string& path);

  absl::StatusOr<StoredState> Load() override;
  absl::Status Commit(const StoreBatch& batch) override;
  absl::StatusOr<std::vector<v1::StepRecord>> Curve(JobId job,
                                                    int64_t after_step,
                                                    int64_t points) override;
  absl::StatusOr<std::vector<v1::EvaluationRecord>> Evaluations(
      JobId job, int64_t newest) override;
  absl::StatusOr<std::vector<v1::JobEvent>> Events(JobId job, int64_t after,
                                                   int64_t limit) override;
  absl::StatusOr<std::vector<v1::JobEvent>> NewestEvents(
      int64_t limit) override;
  absl::StatusOr<std::vector<v1::LogLine>> Logs(JobId job, int64_t after,
                                                int64_t limit) override;

 private:
  explicit SqliteStore(std::unique_ptr<Database> database)
      : database_(std::move(database)) {}

  absl::Status Write(const StoreBatch& batch);
  absl::Status WriteValues(const StoreBatch& batch);
  absl::Status PutValue(const std::string& key, const std::string& value);
  absl::Status DropValue(const std::string& key);
  // A number that only grows.
  absl::Status RaiseNumber(const std::string& key, int64_t number);
  absl::Status AddRecords(JobId job, const StoreBatch::Records& records);
  absl::Status AddLogs(
      JobId job, const std::vector<std::pair<Incarnation, v1::LogLine>>& logs);
  absl::Status Delete(JobId job);
  absl::Status LoadValues(StoredState& state);

  const std::unique_ptr<Database> database_;
};

// Positions of `points` out of `count` records, ascending, evenly apart, the
// last one always among them; all when there are no more than `points`.
std::vector<int64_t> EvenlyTaken(int64_t count, int64_t points);

}  // namespace paceline
