// Checkpoints decides which cut of which job is brought to the coordinator's
// disk, which of those there are kept, and from which one a job goes on.
//
// Assumes: one cut is brought at a time, of all jobs; a checkpoint of a job
// that has ended changes no more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/checkpoint_store.h"
#include "coordinator/mesh_state.h"
#include "coordinator/pipelines.h"

namespace paceline {

// Since the start.
struct CheckpointCounts {
  int64_t kept = 0;
  int64_t failed = 0;
  absl::Duration took;  // all that were kept, together
};

// A job that is to go on from a checkpoint, before that was read.
struct Resumption {
  CheckpointId checkpoint;
  StateLayout wants;  // of the job's spec
  v1::Inputs inputs;  // that the job must find, unless it may find others
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

  // Begins with the next cut that is due, unless one is under way.
  void Serve(Moment moment);
  // The answers to Actions::Checkpoint::kFetch and kKeep.
  void OnFetched(absl::StatusOr<v1::Checkpoint> fetched, Moment moment);
  void OnKept(const absl::Status& kept, Moment moment);
  // Takes those off the list that turned out to be of broken states: the job
  // has failed.  One that is sound stays beside one that is not known to be.
  void DropBroken(JobEntry& job);
  // The checkpoint, which was to be read for `job`, is not as it was written.
  void OnDamaged(JobId job, CheckpointId checkpoint, const absl::Status& why,
                 Moment moment);

  // The checkpoint with which an export of the job begins; nothing: it is made
  // first, and Actions::exports says when.
  // Errors: FailedPrecondition  there is none, and there will be none
  absl::StatusOr<std::optional<CheckpointId>> OnExport(JobId job,
                                                       Moment moment);

  // Errors: NotFound  that cut of the job is in no checkpoint
  absl::StatusOr<CheckpointId> Find(JobId job, Cut cut) const;
  // Whether `request`, which has `resume`, may go on from there.
  // Errors: NotFound, FailedPrecondition, InvalidArgument as SubmitJob's
  absl::StatusOr<Resumption> CheckResume(
      const v1::SubmitJobRequest& request) const;
  // The job has left the coordinator's memory.
  void Forget(JobId job) {
    failed_at_.erase(job);
    exported_.erase(job);
  }
  // It is being brought to the disk, whether or not the job has ended.
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
  // False: what is under way failed, as its job needs it no more.
  bool IsStillWanted(Moment moment);
  void Fail(const std::string& why, Moment moment);
  // Whoever waits for an export of the job is answered.
  void AnswerExport(JobId job, absl::StatusOr<CheckpointId> answer);
  JobEntry* End(Moment moment);
  void Retain(const JobEntry& job);

  MeshState& mesh_;
  Pipelines& pipelines_;
  std::optional<UnderWay> under_way_;
  std::set<JobId> exports_;             // clients wait for these
  std::map<JobId, int64_t> failed_at_;  // step of the last one that failed
  // The step that clients read, maybe for long; it stays too.
  std::map<JobId, int64_t> exported_;
  CheckpointCounts counts_;
};

// The newest checkpoint that the job may go on from; Cut{}: there is none.
// One with which it began counts as of attempt 0.
Cut NewestCheckpoint(const JobRecord& record);
Lineage LineageOf(const JobRecord& record);

}  // namespace paceline
