// The durable JobStore: one SQLite file in write-ahead mode.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "coordinator/jobs/job_store.h"
#include "coordinator/store/sqlite.h"

namespace paceline {

// Thread-compatible.  A durable batch is on the disk when Commit() returns
// (synchronous=FULL); any other one survives the death of the process, and a
// power cut takes at most the last moments (synchronous=NORMAL).
//
// Rows are serialized messages of paceline.v1.  Queries need the columns beside
// them.
//
//   jobs     Job, by id
//   job_index  a job's end (0: it is open, -1: it was deleted), its state (0: a
//            program without this table wrote it last; Load() reads it), its
//            request, and whether its curve is thinned for good
//   records  v1::StepRecord (kind 1) and v1::EvaluationRecord (kind 2), by step
//   events   JobEvent, in the order of their sequence
//   logs     LogLine, in the order of their sequence
//   kv       worker/ID Registration, drained/ID, group/JOB StoredGroup,
//            token/ID JoinToken, revoked/ROLE/NAME a time, profile/...
//            DeviceProfile, link/FROM/TO LinkMeasurement, and the numbers
//            next_job and term
class SqliteStore : public JobStore {
 public:
  // Opens or makes `path`; ":memory:" is a store that ends with its object.  It
  // does not check the contents: see StoreCheck.
  //
  // Errors: DataLoss         the file is damaged or no store
  //         InvalidArgument  another version of the program wrote it; the file
  //                          stays as it is
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(
      const std::string& path);

  absl::StatusOr<StoredState> Load() override;
  absl::Status Commit(const StoreBatch& batch) override;
  absl::Status Upkeep() override;
  absl::StatusOr<std::vector<JobRecord>> JobsBelow(JobId below, int64_t limit,
                                                   int64_t bytes) override;
  absl::StatusOr<std::vector<JobRecord>> LastEnded(int64_t limit) override;
  absl::StatusOr<JobId> FindRequest(const std::string& request_id) override;
  absl::StatusOr<StoredCurve> Curve(JobId job, int64_t after_step,
                                    int64_t points) override;
  absl::StatusOr<std::vector<v1::EvaluationRecord>> Evaluations(
      JobId job, int64_t newest) override;
  absl::StatusOr<StoredRows> RowsAfter(JobId job, int64_t after_step,
                                       int64_t limit) override;
  absl::StatusOr<std::vector<v1::JobEvent>> Events(JobId job, int64_t after,
                                                   int64_t limit) override;
  absl::StatusOr<std::vector<v1::JobEvent>> NewestEvents(
      int64_t limit) override;
  absl::StatusOr<std::vector<v1::LogLine>> Logs(JobId job, int64_t after,
                                                int64_t limit) override;

 private:
  // How far a job's curve is thinned.
  struct Thinning {
    int64_t first = 0;   // step of the first record
    int64_t stride = 1;  // of the records before `next`
    int64_t next = 0;
    bool due = true;
  };

  explicit SqliteStore(std::unique_ptr<Database> database)
      : database_(std::move(database)) {}

  // Runs BEGIN, `write`, and COMMIT or ROLLBACK.
  absl::Status Transact(absl::FunctionRef<absl::Status()> write);
  absl::Status Write(const StoreBatch& batch);
  absl::Status WriteValues(const StoreBatch& batch);
  // Runs a statement without rows, with these values.
  template <typename... Values>
  absl::Status Run(const char* sql, const Values&... values) {
    return Query(*database_, sql, values...).Run();
  }
  // The value of KIND/ID: a Blob or a message.
  template <typename Value>
  absl::Status PutValue(const char* kind, const absl::AlphaNum& id,
                        const Value& value) {
    return Run("INSERT OR REPLACE INTO kv VALUES (?,?)",
               absl::StrCat(kind, "/", id), value);
  }
  absl::Status DropValue(const char* kind, const absl::AlphaNum& id) {
    return Run("DELETE FROM kv WHERE key=?", absl::StrCat(kind, "/", id));
  }
  // Stores a number that only grows.
  absl::Status RaiseNumber(const std::string& key, int64_t number) {
    return Run("UPDATE kv SET value=max(value,?) WHERE key=?", number, key);
  }
  absl::Status AddRecords(JobId job, const StoreBatch::Records& records);
  absl::Status AddLogs(
      JobId job, const std::vector<std::pair<Incarnation, v1::LogLine>>& logs);
  // table: has one row per sequence number.
  absl::Status KeepNewest(const std::string& table, JobId job, int64_t rows);
  absl::Status Delete(JobId job);
  absl::Status IndexJob(const v1::Job& job);
  absl::Status IndexUnknownJobs();
  absl::Status LoadValues(StoredState& state);
  // The number in the first row; 0: there is none.
  absl::StatusOr<int64_t> First(const char* sql);
  // These subtract from `rows` the rows that they read or delete.
  absl::Status DropRecords(JobId job, int64_t& rows);
  absl::Status ThinCurve(JobId job, Thinning& curve, int64_t& rows);
  // The first and the last step of a curve; 0 where it is empty.
  absl::StatusOr<std::pair<int64_t, int64_t>> EndsOf(JobId job);

  std::unique_ptr<Database> database_;
  std::map<JobId, Thinning> thinning_;  // of jobs with new steps
};

// Positions of `points` out of `count` records: ascending, evenly apart, with
// the last one; all when there are no more than `points`.
std::vector<int64_t> EvenlyTaken(int64_t count, int64_t points);

}  // namespace paceline
