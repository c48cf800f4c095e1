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
#include "coordinator/records.h"
#include "core/base/ids.h"
#include "core/plan/inputs.h"
#include "core/round/view.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/trust.pb.h"

namespace paceline {

// Lines of one job that are kept; older ones go.
constexpr int64_t kLogLinesKept = 10000;

// The newest of every key.
struct StoredMeasurements : Measurements {
  void Put(const DeviceProfile& profile) { profiles[profile.key] = profile; }
  void Put(const LinkMeasurement& link) { links[{link.from, link.to}] = link; }
};

// The newest view of a data-parallel job, and what else of its group outlives
// the coordinator.
struct KeptView {
  int64_t attempt = 0;
  View view;
  // Processes that were taken out, the last one of each worker: none of them
  // comes back.
  std::map<WorkerId, Incarnation> excluded = {};
  // A group that had begun was lost: later attempts are without the job's
  // faults.
  bool faults_are_spent = false;
};

struct StoredState {
  std::map<WorkerId, v1::Registration> workers;
  std::set<WorkerId> drained;  // get nothing new
  int64_t term = 0;            // of the last coordinator's views
  std::map<JobId, KeptView> views;
  std::map<JobId, JobRecord> jobs;
  JobId next_job{1};  // never used before, also by jobs that were deleted
  StoredMeasurements measurements;
  std::map<std::string, v1::JoinToken> tokens;  // by id
  std::map<std::string, int64_t> revoked;       // as MeshState
};

// Everything that one transaction writes.
struct StoreBatch {
  // Also survives a power cut, not only a crash of the process.
  bool durable = false;
  std::map<WorkerId, v1::Registration> workers = {};  // put
  std::map<WorkerId, bool> drained = {};              // put; false: no more
  // Workers that go, with their drain marks; after both.
  std::vector<WorkerId> forgotten = {};
  std::optional<int64_t> term = {};      // put
  std::map<JobId, KeptView> views = {};  // put; one a job
  std::map<JobId, JobRecord> jobs = {};  // put
  // Go on after so many steps: records of later steps that are there go, and
  // with 0 the evaluation before the first step too, before those below are
  // put.
  std::map<JobId, int64_t> restarted = {};
  struct Records {
    std::vector<v1::StepRecord> steps = {};              // put by step
    std::vector<v1::EvaluationRecord> evaluations = {};  // put by step
    std::vector<v1::JobEvent> events = {};               // appended
    // Appended, each beside the process it is of; but a line whose process and
    // sequence (not 0) are those of one that is there already is the same line,
    // and is dropped.
    std::vector<std::pair<Incarnation, v1::LogLine>> logs = {};
  };
  std::map<JobId, Records> records = {};
  StoredMeasurements measurements = {};  // put by key
  // By id; nothing: it goes.
  std::map<std::string, std::optional<v1::JoinToken>> tokens = {};
  std::map<std::string, int64_t> revoked = {};  // put
  // Jobs that go, with all their records; after everything else.
  std::vector<JobId> deleted = {};

  bool empty() const {
    return workers.empty() && drained.empty() && forgotten.empty() &&
           !term.has_value() && views.empty() && jobs.empty() &&
           restarted.empty() && records.empty() &&
           measurements.profiles.empty() && measurements.links.empty() &&
           tokens.empty() && revoked.empty() && deleted.empty();
  }
};

// Thread-compatible.
//
// Errors of all methods:
//   DataLoss           what is stored is damaged
//   ResourceExhausted  the disk is full
//   Internal           anything else that the data base says
class JobStore {
 public:
  virtual ~JobStore() = default;

  virtual absl::StatusOr<StoredState> Load() = 0;

  // All of it or nothing.
  virtual absl::Status Commit(const StoreBatch& batch) = 0;

  // Records of steps after `after_step`, ascending; at most `points` of them,
  // as EvenlyTaken() picks.
  virtual absl::StatusOr<std::vector<v1::StepRecord>> Curve(JobId job,
                                                            int64_t after_step,
                                                            int64_t points) = 0;
  // By step; at most `newest` of them, the last ones.
  virtual absl::StatusOr<std::vector<v1::EvaluationRecord>> Evaluations(
      JobId job, int64_t newest) = 0;
  // Those with a number greater than `after`, ascending, the first `limit`.
  // Their `sequence` is that number: the store counts them.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> Events(JobId job,
                                                           int64_t after,
                                                           int64_t limit) = 0;
  // The newest of all jobs, ascending.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> NewestEvents(
      int64_t limit) = 0;
  virtual absl::StatusOr<std::vector<v1::LogLine>> Logs(JobId job,
                                                        int64_t after,
                                                        int64_t limit) = 0;
};

}  // namespace paceline
