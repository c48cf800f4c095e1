// Brain decides what the mesh does: which job runs where, when it has ended,
// and what every worker's standing order is.  It hands each event to the part
// that it concerns, and derives the orders.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/checkpoints.h"
#include "coordinator/groups.h"
#include "coordinator/job_progress.h"
#include "coordinator/job_queue.h"
#include "coordinator/mesh_measurements.h"
#include "coordinator/mesh_state.h"
#include "coordinator/pipelines.h"
#include "coordinator/tokens.h"
#include "coordinator/weights_store.h"

namespace paceline {

// Thread-compatible; lives on the coordinator's loop.  Pure: no clock, no I/O.
class Brain {
 public:
  // Continues where `stored` ended.
  Brain(const BrainPolicy& policy, StoredState stored, Moment start);

  // Errors: those of CheckRegistration() and Membership::OnAttach().
  absl::StatusOr<AttachVerdict> OnAttach(const v1::Registration& sent,
                                         StreamId stream, Moment moment);
  void OnStreamBroken(StreamId stream, Moment moment);
  // Errors: Aborted  the stream is no member's present one; nothing was taken.
  absl::Status OnReport(StreamId stream, WorkerReport report, Moment moment);

  // Checks and places, changes nothing: the caller stores `job` before it says
  // OnSubmitted().
  // Errors:
  //   InvalidArgument    what is wrong with the spec, all of it
  //   ResourceExhausted  no worker has the memory that a stage needs
  //   FailedPrecondition no attached worker has the cores for its threads
  absl::StatusOr<Submission> CheckSubmit(const v1::SubmitJobRequest& request,
                                         Moment moment) const;
  void OnSubmitted(JobRecord job, Moment moment);

  // Errors: NotFound.
  absl::Status OnStop(JobId job, Moment moment);
  // Changes nothing: the caller deletes the job from the store before it says
  // OnDeleted().
  // Errors: NotFound; FailedPrecondition  it is queued or running.
  absl::Status CheckDelete(JobId job) const;
  void OnDeleted(JobId job);

  // A worker gets nothing new, and leaves its round group; of a pipeline it
  // hands its stages over first.  Again: nothing.
  // Errors: NotFound  no worker of that name or number; lists those there are
  absl::StatusOr<v1::Worker> OnDrain(const std::string& worker, bool drain,
                                     Moment moment);

  // Takes a worker that is gone off the list.  As it was.
  // Errors: NotFound            as OnDrain()
  //         FailedPrecondition  it is there, or a job waits for it
  absl::StatusOr<v1::Worker> OnForget(const std::string& worker, Moment moment);

  // `request` names a worker or a client.  The worker is stopped.
  // Errors: ResourceExhausted  too many were revoked
  absl::StatusOr<v1::Revocation> OnRevoke(const v1::RevokeRequest& request,
                                          Moment moment);

  // Has workers measure; see MeasureQueue.  The answer: the id for
  // ViewProfile(). Errors: InvalidArgument; NotFound  no live worker of that
  // name;
  //         FailedPrecondition  no worker at all
  absl::StatusOr<v1::StartProfileResponse> OnProfile(
      const v1::StartProfileRequest& request, Moment moment);

  // The answer to Actions::Weights::kSave.
  void OnWeightsSaved(const Fence& fence, absl::StatusOr<SavedWeights> saved,
                      Moment moment);
  // Weights of this run can no longer be received.
  void OnWeightsFailed(const Fence& fence, const absl::Status& error,
                       Moment moment);

  // As Coordinator::AdmitUpload().
  //   stream  of the worker; not assigned: there is none
  absl::Status CheckUpload(const Fence& fence, StreamId stream) const;

  // See Checkpoints.
  void OnCheckpointFetched(absl::StatusOr<v1::Checkpoint> fetched,
                           Moment moment) {
    checkpoints_.OnFetched(std::move(fetched), moment);
    Settle(moment);
  }
  void OnCheckpointKept(const absl::Status& kept, Moment moment) {
    checkpoints_.OnKept(kept, moment);
    Settle(moment);
  }
  void OnCheckpointDamaged(JobId job, CheckpointId checkpoint,
                           const absl::Status& why, Moment moment) {
    checkpoints_.OnDamaged(job, checkpoint, why, moment);
    Settle(moment);
  }
  absl::StatusOr<std::optional<CheckpointId>> OnExport(JobId job,
                                                       Moment moment) {
    auto checkpoint = checkpoints_.OnExport(job, moment);
    Settle(moment);
    return checkpoint;
  }
  const Checkpoints& checkpoints() const { return checkpoints_; }
  Tokens& tokens() { return tokens_; }
  // As Tokens; a worker whose name another key gets is stopped.
  absl::Status OnUseToken(const TokenUse& use, Moment moment);

  // Before anything else that came meanwhile: nothing was done for so long,
  // whoever was at fault.
  void OnStandstill(absl::Duration duration, Moment moment);
  void OnTick(Moment moment);

  const Actions& actions() const { return mesh_.actions; }
  // They are stored.  Of jobs that have ended, the last ones stay in memory.
  Actions TakeActions();
  // Has a job that is stored, and has ended, in memory until TakeActions(), or
  // as long as it is one of the last.
  void Recall(const JobRecord& record);
  // Writing actions().writes has failed; they stay, to be tried again with the
  // next batch.  Acknowledgements are taken back (later ones cover them), and
  // of each job's records the newest 100'000 are kept.  Jobs that have not
  // ended say so in their `why` and, once an error, with an event.
  void OnStoreFailed(const absl::Status& error, Moment moment);
  // It works again.  After TakeActions(): what this adds is not stored yet.
  void OnStoreWorks(Moment moment);
  // Events of a job that could not be stored yet, oldest first.
  std::vector<v1::JobEvent> PendingEvents(JobId job) const;

  // Errors: NotFound.
  absl::StatusOr<const JobRecord*> FindRecord(JobId job) const;
  // As a client is shown it, without curve and evaluations.  Errors: NotFound.
  absl::StatusOr<v1::Job> ViewJob(JobId job) const;
  // The same of one that is stored, and may be in memory.
  v1::Job ViewStored(JobRecord record) const;
  // By id.  Cost: theirs, and little of those that wait.
  std::vector<v1::Job> ViewRunningJobs() const;
  // Those that run, and of those that wait the first and of those that have
  // ended the last `most`; by id.
  std::vector<JobId> ShownJobs(int most) const;
  int64_t placements() const { return mesh_.placements; }  // that were made
  // As measured last, by from and to.
  const auto& links() const { return mesh_.measured.links; }
  std::map<JobState, int64_t> CountJobs() const;
  // "3 workers attached, 1 jobs running, 2 queued".
  std::string Summary() const;
  // By id: at most `most` with greater ones than `after`.
  std::vector<v1::Worker> ViewWorkers(
      Instant now, WorkerId after = {},
      int64_t most = std::numeric_limits<int64_t>::max()) const;
  const GroupCounts& group_counts() const { return groups_.counts(); }
  int64_t losses() const { return losses_; }  // of workers, since the start
  // Recoveries that have ended since the last call.
  std::vector<v1::Recovery> TakeRecoveries() {
    return std::exchange(mesh_.recoveries, {});
  }
  // Errors: NotFound.
  absl::StatusOr<v1::GetProfileResponse> ViewProfile(
      const v1::GetProfileRequest& request, Instant now) {
    return mesh_.measures.View(request.id(), now, request.page_token());
  }
  // Errors: InvalidArgument  no such page
  absl::StatusOr<v1::ListMeasurementsResponse> ViewMeasurements(
      const v1::ListMeasurementsRequest& request) const {
    return measurements_.ViewMeasurements(request);
  }

 private:
  void TakeChanges(const std::vector<MembershipChange>& changes, Moment moment);
  void CheckWorkers(JobEntry& job, Moment moment);
  // Those of the name, and of names that differ in their case alone.  Whether
  // there are any.
  bool StopWorkers(const std::string& name, const std::string& why,
                   Moment moment);
  void OnWorkerLost(const Member& member, Moment moment);
  // Tells the jobs whether the worker is drained now.
  void TellOfDrain(const Member& member, Moment moment);
  // To be called after every event.
  void Settle(Moment moment, bool is_tick = false);
  void EndSavedJobs(Moment moment);
  void RefreshOrders();
  // job: the one that has the worker; null: none has.
  StandingOrder OrderOf(const Member& member, const JobEntry* job) const;
  v1::Worker ViewWorker(const Member& member, Instant now) const;
  v1::Job ViewOf(const JobEntry& job) const;

  // Declared in the order in which they borrow each other.
  MeshState mesh_;
  JobProgress progress_;
  MeshMeasurements measurements_;
  Groups groups_;
  Pipelines pipelines_;
  Checkpoints checkpoints_;
  JobQueue queue_;
  Tokens tokens_;
  // The newest on every stream; nothing yet where one has just begun.
  std::map<StreamId, std::optional<StandingOrder>> sent_;
  int64_t losses_ = 0;
  Instant served_;  // when the queue was judged last
  Instant redialled_;
};

}  // namespace paceline
