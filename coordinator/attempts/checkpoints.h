// Checkpoints decides which cut of which job is copied to the coordinator's
// disk, which checkpoints are kept, and from which one a job resumes.
//
// Assumes: one cut is copied at a time, over all jobs; a checkpoint of a job
// that has ended does not change.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/attempts/pipelines.h"
#include "coordinator/jobs/checkpoint_store.h"
#include "coordinator/mesh/mesh_state.h"

namespace paceline {

// Since the start.
struct CheckpointCounts {
  int64_t kept = 0;
  int64_t failed = 0;
  absl::Duration took;  // total time of those kept
};

// A request to resume from a checkpoint that was not read yet.
struct Resumption {
  CheckpointId checkpoint;
  StateLayout wants;  // of the job's spec
  v1::Inputs inputs;  // the job must read these, unless it accepts others
};

// Thread-compatible; lives on the coordinator's loop.
class Checkpoints {
 public:
  static constexpr int kKept = 2;  // of each job

  // Both outlive this.
  Checkpoints(MeshState& mesh, Pipelines& pipelines)
      : mesh_(mesh), pipelines_(pipelines) {}

  // Whether a checkpoint of the job's last step is due and may still be made.
  bool AwaitsLast(const JobEntry& job) const;

  // Starts copying the next cut that is due, unless one is under way.
  void Serve(Moment moment);
  // The answers to Actions::Checkpoint::kFetch and kKeep.
  void OnFetched(absl::StatusOr<v1::Checkpoint> fetched, Moment moment);
  void OnKept(const absl::Status& kept, Moment moment);
  // Drops the checkpoints of states that are now known to be broken, once the
  // job has failed.  An older, sound one may stay.
  void DropBroken(JobEntry& job);
  // A read for `job` found the checkpoint damaged.
  void OnDamaged(JobId job, CheckpointId checkpoint, const absl::Status& why,
                 Moment moment);

  // The checkpoint to export; nothing: it is made first, and Actions::exports
  // announces it.
  // Errors: FailedPrecondition  none exists, and none is being made
  absl::StatusOr<std::optional<CheckpointId>> OnExport(JobId job,
                                                       Moment moment);

  // Errors: NotFound  the job has no checkpoint of that cut
  absl::StatusOr<CheckpointId> Find(JobId job, Cut cut) const;
  // Checks that the job of `request`, which has `resume`, may resume there.
  // Errors: NotFound, FailedPrecondition, InvalidArgument as SubmitJob's
  absl::StatusOr<Resumption> CheckResume(
      const v1::SubmitJobRequest& request) const;
  // The job has left the coordinator's memory.
  void Forget(JobId job) {
    failed_at_.erase(job);
    exported_.erase(job);
  }
  // A cut of the job is being copied, even if the job has ended.
  bool IsUnderWay(JobId job) const {
    return under_way_.has_value() && under_way_->job == job;
  }
  // An open job that began from a checkpoint of `job`; not assigned: none.
  JobId UserOf(JobId job) const;

  const CheckpointCounts& counts() const { return counts_; }

 private:
  struct UnderWay {
    JobId job;
    Cut cut;
    Instant since;
    v1::Checkpoint fetched;
  };

  int64_t DueAt(const JobEntry& job) const;
  void Begin(JobEntry& job, Cut cut, Moment moment);
  // False: the job no longer needs the cut under way, which fails then.
  bool IsStillWanted(Moment moment);
  void Fail(const std::string& why, Moment moment);
  // Answers the clients that wait for an export of the job.
  void AnswerExport(JobId job, absl::StatusOr<CheckpointId> answer);
  JobEntry* End(Moment moment);
  void Retain(const JobEntry& job);

  MeshState& mesh_;
  Pipelines& pipelines_;
  std::optional<UnderWay> under_way_;
  std::set<JobId> exports_;             // jobs whose export clients await
  std::map<JobId, int64_t> failed_at_;  // step of the last failure
  // The step that clients read, maybe slowly; it is kept too.
  std::map<JobId, int64_t> exported_;
  CheckpointCounts counts_;
};

// The checkpoints from which the job may go on.  The one with which it began
// counts as of attempt 0; Cut{}: the beginning.
std::set<Cut> CheckpointCuts(const JobRecord& record);
Cut NewestCheckpoint(const JobRecord& record);
Lineage LineageOf(const JobRecord& record);

}  // namespace paceline
