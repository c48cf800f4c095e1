// A JobStore keeps what outlives the coordinator's process: workers, jobs, and
// their records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/jobs/records.h"
#include "core/base/ids.h"
#include "core/plan/inputs.h"
#include "core/round/view.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/trust.pb.h"

namespace paceline {

// The newest log lines and events that one job keeps.
constexpr int64_t kLogLinesKept = 10000;
constexpr int64_t kEventsKept = 10000;
// A job's curve has every record of its newest kWholeSteps steps.  Of the older
// ones it has at most kOlderSteps: each CurveStride()-th, from the first on.
constexpr int64_t kWholeSteps = 10'000;
constexpr int64_t kOlderSteps = 10'000;
// The most rows that one transaction of Upkeep() deletes.
constexpr int64_t kRowsATime = 1000;
// The last jobs that have ended stay in memory, for watchers.
constexpr int64_t kEndedInMemory = 30;

// The least power of two that leaves at most kOlderSteps of the steps between
// `first` (at least 1) and the last kWholeSteps up to `newest`.
inline int64_t CurveStride(int64_t first, int64_t newest) {
  const int64_t older = newest - kWholeSteps - first + 1;
  int64_t stride = 1;
  while ((older - 1) / stride + 1 > kOlderSteps) stride *= 2;
  return stride;
}

struct StoredCurve {
  std::vector<v1::StepRecord> points;  // by step
  int64_t stride = 1;
};

struct StoredRows {
  std::vector<v1::StepRecord> steps;              // by step
  std::vector<v1::EvaluationRecord> evaluations;  // by step
};

// The newest measurement of every key.
struct StoredMeasurements : Measurements {
  void Put(const DeviceProfile& profile) {
    profiles[profile.key] = profile;
    ++version;
  }
  void Put(const LinkMeasurement& link) {
    links[{link.from, link.to}] = link;
    ++version;
  }

  int64_t version = 0;  // grows with every change
};

// The newest view of a data-parallel job, and the rest of its group's state
// that outlives the coordinator.
struct KeptView {
  int64_t attempt = 0;
  View view;
  // The last process of each worker that was removed; it never comes back.
  std::map<WorkerId, Incarnation> excluded = {};
  // A group that had begun was lost: later attempts inject no faults.
  bool faults_are_spent = false;
  // The last process of each worker whose state differed from the majority's,
  // in this attempt or an earlier one.
  std::map<WorkerId, Incarnation> distrusted = {};
};

struct StoredState {
  std::map<WorkerId, v1::Registration> workers;
  std::set<WorkerId> drained;  // get no new work
  int64_t term = 0;            // of the last coordinator's views
  std::map<JobId, KeptView> views;
  std::map<JobId, JobRecord> jobs;        // open ones, and the last ended ones
  std::map<v1::JobState, int64_t> ended;  // counts of all others
  JobId next_job{1};                      // unused so far, also by deleted jobs
  StoredMeasurements measurements;
  std::map<std::string, v1::JoinToken> tokens;  // by id
  std::map<std::string, int64_t> revoked;       // as MeshState
  std::map<std::string, std::string> keys;      // as Tokens
};

// The writes of one transaction.
struct StoreBatch {
  // Also survives a power cut, not only a crash of the process.
  bool durable = false;
  std::map<WorkerId, v1::Registration> workers = {};  // put
  std::map<WorkerId, bool> drained = {};              // put; false: removed
  // Workers to delete with their drain marks; applied after both.
  std::vector<WorkerId> forgotten = {};
  std::optional<int64_t> term = {};      // put
  std::map<JobId, KeptView> views = {};  // put; one a job
  std::map<JobId, JobRecord> jobs = {};  // put
  // Jobs that go on after so many steps.  Before `records` are put, records of
  // later steps are deleted; with 0 also the evaluation before the first step.
  std::map<JobId, int64_t> restarted = {};
  struct Records {
    std::vector<v1::StepRecord> steps = {};              // put by step
    std::vector<v1::EvaluationRecord> evaluations = {};  // put by step
    std::vector<v1::JobEvent> events = {};               // appended
    // Appended, each with its process.  A line whose process and sequence (not
    // 0) are stored already is dropped.
    std::vector<std::pair<Incarnation, v1::LogLine>> logs = {};
  };
  std::map<JobId, Records> records = {};
  StoredMeasurements measurements = {};  // put by key
  // By id; nothing: deleted.
  std::map<std::string, std::optional<v1::JoinToken>> tokens = {};
  std::map<std::string, int64_t> revoked = {};  // put
  // By name, as Tokens; empty: deleted.
  std::map<std::string, std::string> keys = {};
  // Jobs to delete, after everything else.  Upkeep() deletes the rest of their
  // records.
  std::vector<JobId> deleted = {};

  bool empty() const {
    return workers.empty() && drained.empty() && forgotten.empty() &&
           !term.has_value() && views.empty() && jobs.empty() &&
           restarted.empty() && records.empty() &&
           measurements.profiles.empty() && measurements.links.empty() &&
           tokens.empty() && revoked.empty() && keys.empty() && deleted.empty();
  }
};

// Thread-compatible.
//
// Errors of all methods:
//   DataLoss           the stored data is damaged
//   ResourceExhausted  the disk is full
//   Internal           any other error of the data base
class JobStore {
 public:
  virtual ~JobStore() = default;

  virtual absl::StatusOr<StoredState> Load() = 0;

  // Writes the whole batch or nothing.
  virtual absl::Status Commit(const StoreBatch& batch) = 0;

  // Removes a few rows: points of curves that CurveStride() leaves out, and
  // rows of deleted jobs.  Called often.
  virtual absl::Status Upkeep() = 0;

  // The jobs with smaller numbers than `below`, newest first: at most `limit`,
  // and no more once they have `bytes` together.
  virtual absl::StatusOr<std::vector<JobRecord>> JobsBelow(JobId below,
                                                           int64_t limit,
                                                           int64_t bytes) = 0;
  // The last jobs that have ended.
  virtual absl::StatusOr<std::vector<JobRecord>> LastEnded(int64_t limit) = 0;
  // The job that was submitted with this request id; not assigned: none.
  virtual absl::StatusOr<JobId> FindRequest(const std::string& request_id) = 0;

  // Records of steps after `after_step`: at most `points`, evenly apart.  The
  // cost grows with the points returned, not with the curve.
  virtual absl::StatusOr<StoredCurve> Curve(JobId job, int64_t after_step,
                                            int64_t points) = 0;
  // The last `newest` ones, by step.
  virtual absl::StatusOr<std::vector<v1::EvaluationRecord>> Evaluations(
      JobId job, int64_t newest) = 0;
  // The first `limit` (at least 1) of each kind after `after_step`; with 0 also
  // the evaluation before the first step.  Where a kind has more, both kinds
  // end at the same step.
  virtual absl::StatusOr<StoredRows> RowsAfter(JobId job, int64_t after_step,
                                               int64_t limit) = 0;
  // The first `limit` events whose `sequence` is greater than `after`,
  // ascending.  The store gives the sequence numbers.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> Events(JobId job,
                                                           int64_t after,
                                                           int64_t limit) = 0;
  // The newest events of all jobs, ascending.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> NewestEvents(
      int64_t limit) = 0;
  virtual absl::StatusOr<std::vector<v1::LogLine>> Logs(JobId job,
                                                        int64_t after,
                                                        int64_t limit) = 0;
};

}  // namespace paceline
