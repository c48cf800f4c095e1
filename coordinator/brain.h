// Brain decides what the mesh does: which job runs where, when it has ended,
// and what every worker's standing order is.  It passes each event to the part
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
#include "coordinator/attempts/checkpoints.h"
#include "coordinator/attempts/groups.h"
#include "coordinator/attempts/job_queue.h"
#include "coordinator/attempts/pipelines.h"
#include "coordinator/jobs/weights_store.h"
#include "coordinator/mesh/mesh_measurements.h"
#include "coordinator/mesh/mesh_state.h"
#include "coordinator/mesh/tokens.h"

namespace paceline {

// Thread-compatible; lives on the coordinator's loop.  Pure: no clock, no I/O.
class Brain {
 public:
  // Continues where `stored` ended.
  Brain(const BrainPolicy& policy, StoredState stored, Moment start);

  // From now on placements are made later, not at once.
  void SetPlaceLater(PlaceLater later) { mesh_.place_later = std::move(later); }
  // Placements for which jobs waited have been made.
  void OnPlaced(Moment moment) {
    mesh_.queue_changed = true;
    OnTick(moment);
  }

  // Errors: those of CheckRegistration() and Membership::OnAttach().
  absl::StatusOr<AttachVerdict> OnAttach(const v1::Registration& sent,
                                         StreamId stream, Moment moment);
  void OnStreamBroken(StreamId stream, Moment moment);
  // Errors: Unavailable  the stream is no member's present one; takes nothing
  absl::Status OnReport(StreamId stream, WorkerReport report, Moment moment);

  // Checks and places, changes nothing: `done` stores the job before it says
  // OnSubmitted(), at once.  It is called when the placement is made.
  // Errors:
  //   InvalidArgument    the spec is wrong; lists every mistake
  //   ResourceExhausted  no worker has the memory that a stage needs
  //   FailedPrecondition no attached worker has the cores for its threads
  void CheckSubmit(const v1::SubmitJobRequest& request, Moment moment,
                   Done<Submission> done) const;
  void OnSubmitted(JobRecord job, Moment moment) {
    queue_.OnSubmitted(std::move(job), moment);
    Settle(moment);
  }

  // Errors: NotFound.
  absl::Status OnStop(JobId job, Moment moment);
  // Changes nothing: the caller deletes the job from the store before it says
  // OnDeleted().
  // Errors: NotFound; FailedPrecondition  it is queued or running.
  absl::Status CheckDelete(JobId job) const;
  void OnDeleted(JobId job);

  // The worker gets no new work and leaves its round group; in a pipeline it
  // hands its stages over first.  Repeating it changes nothing.
  // Errors: NotFound  no worker of that name or number; lists all workers
  absl::StatusOr<v1::Worker> OnDrain(const std::string& worker, bool drain,
                                     Moment moment);

  // Removes a worker that is gone from the list.  Returns it as it was.
  // Errors: NotFound            as OnDrain()
  //         FailedPrecondition  it is live, or a job waits for it
  absl::StatusOr<v1::Worker> OnForget(const std::string& worker, Moment moment);

  // `request` names a worker or a client.  The worker is stopped.
  // Errors: ResourceExhausted  too many were revoked
  absl::StatusOr<v1::Revocation> OnRevoke(const v1::RevokeRequest& request,
                                          Moment moment);

  // Has workers measure; see MeasureQueue.  Returns the id for ViewProfile().
  // Errors: InvalidArgument; NotFound  no live worker of that name;
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
  absl::Status CheckUpload(const Fence& fence, StreamId stream);

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
  // As Tokens.  Stops a worker whose name goes to another key.
  absl::Status OnUseToken(const TokenUse& use, Moment moment);

  // The coordinator did nothing for `duration`, for whatever reason.  Called
  // before the events that came meanwhile.
  void OnStandstill(absl::Duration duration, Moment moment);
  void OnTick(Moment moment);

  const Actions& actions() const { return mesh_.actions; }
  // Called when the writes are stored.  Drops all but the last ended jobs from
  // memory.
  Actions TakeActions();
  // Keeps a stored job that has ended in memory until TakeActions(), or while
  // it is one of the last that ended.
  void Recall(const JobRecord& record);
  // Writing actions().writes has failed; they stay for the next batch.  Drops
  // the acknowledgements (later ones cover them) and all but the newest 100'000
  // records of each kind of a job.  Open jobs report the error in their `why`
  // and, once an error, with an event.
  void OnStoreFailed(const absl::Status& error, Moment moment);
  // The store works again.  Called after TakeActions(): this adds new actions.
  void OnStoreWorks(Moment moment);
  // Events of a job that could not be stored yet, oldest first.
  std::vector<v1::JobEvent> PendingEvents(JobId job) const;

  // Errors: NotFound.
  absl::StatusOr<const JobRecord*> FindRecord(JobId job) const;
  // The client's view, without curve and evaluations.  Errors: NotFound.
  absl::StatusOr<v1::Job> ViewJob(JobId job) const;
  // The same for a stored job, which may also be in memory.
  v1::Job ViewStored(JobRecord record) const;
  // By id.  Cost: linear in their number; jobs that wait cost little.
  std::vector<v1::Job> ViewRunningJobs() const;
  // The jobs that run, the first `most` that wait and the last `most` that have
  // ended; by id.
  std::vector<JobId> ShownJobs(int most) const;
  int64_t placements() const { return mesh_.placements; }  // begun so far
  // The last measurements, by from and to.
  const auto& links() const { return mesh_.measured.links; }
  std::map<v1::JobState, int64_t> CountJobs() const;
  // "3 workers attached, 1 jobs running, 2 queued".
  std::string Summary() const;
  // By id: the first `most` whose id is greater than `after`.
  std::vector<v1::Worker> ViewWorkers(
      Instant now, WorkerId after = {},
      int64_t most = std::numeric_limits<int64_t>::max()) const;
  const GroupCounts& group_counts() const { return groups_.counts(); }
  int64_t losses() const { return losses_; }  // lost workers, since the start
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
    return PageOfMeasurements(mesh_, request);
  }

 private:
  // The submission of a job that goes on from a checkpoint.
  absl::StatusOr<Submission> Resumed(const v1::SubmitJobRequest& request,
                                     Submission submission) const;
  void TakeChanges(const std::vector<MembershipChange>& changes, Moment moment);
  // Stops the workers of this name, in whatever case.  Returns whether there
  // are any.
  bool StopWorkers(const std::string& name, const std::string& why,
                   Moment moment);
  void OnWorkerLost(const Member& member, Moment moment);
  // Tells the jobs whether the worker is drained now.
  void TellOfDrain(const Member& member, Moment moment);
  // Called after every event.
  void Settle(Moment moment, bool is_tick = false);
  void EndSavedJobs(Moment moment);
  void RefreshOrders();
  // job: the worker's; null: it has none.
  StandingOrder OrderOf(const Member& member, const JobEntry* job) const;
  v1::Worker ViewWorker(const Member& member, Instant now) const;
  v1::Job ViewOf(const JobEntry& job) const;

  // Declared in the order in which they borrow each other.
  MeshState mesh_;
  Groups groups_;
  Pipelines pipelines_;
  Checkpoints checkpoints_;
  JobQueue queue_;
  Tokens tokens_;
  // The newest order on every stream; nothing: none was sent yet.
  std::map<StreamId, std::optional<StandingOrder>> sent_;
  int64_t losses_ = 0;
  Instant served_;  // when the queue was last served
  Instant redialled_;
};

}  // namespace paceline
