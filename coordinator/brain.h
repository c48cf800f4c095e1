// Decides what the mesh does: which job runs where, when it has ended, and
// what every worker's standing order is.
//
// Assumes: one worker runs one job at a time; jobs are served first come first
// served, but a job that waits for workers that are not there holds up no
// other; until recovery exists a pipeline fails with the first worker it
// loses.  A data-parallel job goes on with who is left, and takes in whoever
// joins while nobody waits in the queue: brain_group.cc, brain_members.cc.
//
// Which new incarnation is a lost worker and which is not: a worker re-executes
// itself before a run when its CPU capability environment differs from its
// order's (same pid, new incarnation).  So a worker that comes back with a new
// incarnation, or is gone for less than `return_period`, is simply given the
// same order again as long as nothing was trained: it has not reported
// kRunning in this attempt and no step was applied.  After that the same
// events mean that what it held is gone, and the job fails.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/group_event_log.h"
#include "coordinator/job_group.h"
#include "coordinator/job_store.h"
#include "coordinator/measure_queue.h"
#include "coordinator/placement.h"
#include "coordinator/records.h"
#include "coordinator/weights_store.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/cluster/membership.h"

namespace paceline {

struct BrainPolicy {
  MembershipPolicy membership;
  // How long a job that has not trained yet waits for a worker that is gone:
  // loading LibTorch again takes seconds on a small machine.
  absl::Duration return_period = absl::Seconds(20);
  // A worker that prepares for longer is named in the why of its job, and of
  // those that wait for it.
  absl::Duration preparing_bound = absl::Seconds(30);
  // A process that was taken out of a round group although its worker is live
  // is asked to start anew, the first time after so long, then twice as long.
  absl::Duration first_pause = absl::Seconds(1);
  absl::Duration longest_pause = absl::Minutes(1);
};

struct Submission {
  JobRecord job;
  bool repeated = false;  // the job is known already; nothing is to be done
  v1::SubmitJobResponse answer;  // without the id
};

// What a heartbeat says, checked.
struct WorkerReport {
  v1::Heartbeat heartbeat;             // of a process in a group with `member`
  std::optional<MemberReport> member;  // heartbeat.run.member
};

// Of all round groups since the start.
struct GroupCounts {
  int64_t views = 0;                     // decided
  std::map<GroupExit, int64_t> leavers;  // processes that left
};

// Something a person should see in the log.
struct Notice {
  bool warn = false;
  std::string text;
  JobId job;
  WorkerId worker;
};

// What the events since the last TakeActions() lead to.  Writes come first:
// nothing else may be seen outside before they are stored.
struct Actions {
  struct Ack {
    StreamId stream;
    int64_t sequence;
  };
  struct Order {
    StreamId stream;
    StandingOrder order;
  };
  struct End {
    StreamId stream;
    absl::Status status;
  };
  struct Weights {
    enum class Kind : uint8_t { kOpen, kSave, kForget };
    Kind kind;
    Fence fence;
    SafetensorsLayout layout;  // kOpen
  };

  StoreBatch writes;
  std::vector<Ack> acks;
  std::vector<Order> orders;
  std::vector<End> ends;
  std::vector<Weights> weights;
  std::vector<Notice> notices;
};

// Thread-compatible; lives on the coordinator's loop.  Pure: no clock, no I/O.
class Brain {
 public:
  // Continues where `stored` ended.
  Brain(const BrainPolicy& policy, StoredState stored, Moment start);

  // Errors: those of CheckRegistration() and Membership::OnAttach().
  absl::StatusOr<AttachVerdict> OnAttach(const v1::Registration& registration,
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
  // finishes its job first.  Again: nothing.
  // Errors: NotFound  no worker of that name or number; lists those there are
  absl::StatusOr<v1::Worker> OnDrain(const std::string& worker, bool drain,
                                     Moment moment);

  // Takes a worker that is gone off the list.  As it was.
  // Errors: NotFound            as OnDrain()
  //         FailedPrecondition  it is there, or a job waits for it
  absl::StatusOr<v1::Worker> OnForget(const std::string& worker, Moment moment);

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

  // Before anything else that came meanwhile: nothing was done for so long,
  // whoever was at fault.
  void OnStandstill(absl::Duration duration, Moment moment);
  void OnTick(Moment moment);

  const Actions& actions() const { return actions_; }
  Actions TakeActions();
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
  // Newest first; limit 0: all.
  std::vector<v1::Job> ViewJobs(int64_t limit) const;
  // Those that have not ended, by id.  Cost: theirs, however many have ended.
  std::vector<v1::Job> ViewOpenJobs() const;
  std::map<JobState, int64_t> CountJobs() const;
  std::vector<v1::Worker> ViewWorkers(Instant now) const;  // by id
  const GroupCounts& group_counts() const { return group_counts_; }
  // Errors: NotFound.
  absl::StatusOr<v1::GetProfileResponse> ViewProfile(int64_t id, Instant now) {
    return measures_.View(id, now);
  }
  // model: empty for all.
  v1::ListMeasurementsResponse ViewMeasurements(const std::string& model) const;

 private:
  // Samples and time of recent steps, for samples_per_second only.
  struct Rate {
    int64_t step;
    int64_t samples;
    int64_t unix_ms;
  };
  struct Job {
    JobRecord record;
    std::deque<Rate> recent;
    int64_t flow_samples = 0;  // of an inference job, in the newest of recent
    std::optional<double> loss;
    std::optional<double> accuracy;
    bool saving = false;    // all workers are done; the file is being closed
    bool restored = false;  // loaded at start
    // Queued: it waits for workers that are not there, and holds up no other.
    bool may_be_passed = false;
    int skip_runs = 0;  // that have an event
    // Steps that records told of: all up to counted_through, and these.
    int64_t counted_through = 0;
    std::set<int64_t> counted;
    // Since when its workers are known to prepare, those that do.
    std::map<WorkerId, Instant> preparing_since;

    // Of a data-parallel job that runs; else nothing.
    std::optional<JobGroup> group;
    GroupEventLog events;
    bool said_running = false;
    bool said_deadline = false;  // that it is too short
    // As in the store.  Where a group that trained was lost, what goes wrong on
    // purpose went wrong, and would again.
    KeptView kept;
    // Attempts in a row that ended before anything was ready, or before a step.
    int false_starts = 0;
    int lost_groups = 0;
    absl::Status lost_error;  // of the last member that failed
    // By step: evaluations of which parts may be missing.
    struct OpenEvaluation {
      v1::EvaluationRecord sum;
      std::set<WorkerId> members;  // had a part of it when the first one came
    };
    std::map<int64_t, OpenEvaluation> evaluating;
    int64_t most_evaluated = 0;  // samples of whole evaluations
    Instant save_again;          // not before, after an incomplete upload
    int incomplete_saves = 0;
    // Processes that were taken out: when they shall start anew.
    struct Return {
      int times = 0;
      Instant due;
    };
    std::map<WorkerId, Return> returns;
    std::set<WorkerId> renew;  // are due
    // Processes that cannot become members, so that they are not asked twice.
    std::map<WorkerId, Incarnation> unfit;
    // Those for whom there was no memory in a group of so many.
    std::map<WorkerId, std::pair<Incarnation, size_t>> cramped;
  };

  Job* FindJob(JobId id);
  // The job that has the worker; null: none.
  Job* JobOf(WorkerId worker);
  const Job* JobOf(WorkerId worker) const;
  // worker: its name, or its number.  Errors: NotFound.
  absl::StatusOr<const Member*> FindMember(const std::string& worker) const;
  // A copy: they may end while one goes through them.
  std::vector<Job*> OpenJobs();
  Job* FindRunning(const Fence& fence);
  std::vector<Candidate> Candidates() const;
  std::vector<StagePlacement> Place(
      const std::vector<StageOfPlan>& stages) const;
  void AddStages(const std::vector<StageOfPlan>& stages,
                 v1::SubmitJobResponse& answer) const;
  double SamplesPerSecond(const Job& job) const;
  std::string NameOf(WorkerId worker) const;

  void TakeRun(Job& job, WorkerId worker, const v1::RunState& run,
               Moment moment);
  static void TakeTimes(JobRecord& record, WorkerId worker,
                        const v1::RunState& run);
  void TakeUnreadable(Job& job, v1::JobWorker& part, const v1::RunState& run,
                      Moment moment);
  static void TakeFlow(Job& job, Moment moment);
  static void TrimRecent(Job& job);
  void TakeRecords(Job& job, const Member& member, WorkerReport& report,
                   Moment moment);
  static bool IsNewStep(Job& job, int64_t step);
  void CountStep(Job& job, const v1::StepRecord& step, Moment moment);
  void OnPhase(Job& job, v1::JobWorker& worker, const v1::RunState& run,
               Moment moment);
  void OnAllDone(Job& job, Moment moment);
  void Evaluate(Job& job, Moment moment);
  void TakeEvaluation(Job& job, const v1::EvaluationRecord& evaluation,
                      Moment moment);

  // --- round groups: brain_group.cc ---
  void StartGroup(Job& job, Moment moment);
  void RestoreGroup(Job& job, Moment moment);
  void KeepGroup(Job& job, const GroupNews& news);
  GroupOptions GroupOptionsOf(const Job& job) const;
  static GroupWorker GroupWorkerOf(const Member& member);
  void TakeMemberReport(Job& job, const Member& member,
                        const WorkerReport& report, Moment moment);
  void TakePeers(const Member& member, const MemberReport& report,
                 Moment moment);
  void TakeRound(Job& job, const v1::RoundRecord& record, Moment moment);
  void TakePartEvaluation(Job& job, WorkerId worker,
                          const v1::EvaluationRecord& part, Moment moment);
  // True when no further part of the oldest open evaluation can come.
  static bool EvaluationIsOver(const Job& job);
  // Ends the oldest open evaluation.
  void EndEvaluation(Job& job, Moment moment);
  void TakeGroupNews(Job& job, Moment moment);
  void TakeLeaver(Job& job, const GroupLeaver& leaver, Moment moment);
  void OnGroupLost(Job& job, Moment moment);
  void RestartGroup(Job& job, const std::string& why, Moment moment);
  bool WaitsForUpload(Job& job, const absl::Status& error, Moment moment);
  std::string WaitsForReturn(const Job& job) const;
  std::string PhaseOfJob(const Job& job) const;
  StandingOrder GroupOrderOf(const Job& job, WorkerId worker) const;

  // --- who is in one: brain_members.cc ---
  void CheckGroup(Job& job, Moment moment);
  void CheckProcess(Job& job, WorkerId worker, Moment moment);
  void RefreshRenewals(Job& job, Moment moment);
  void AddWorker(Job& job, const Member& member, const ModelDescription& model);
  void AdmitJoiners(Moment moment);
  void AdmitJoinersOf(Job& job, Moment moment);
  bool HasMemory(Job& job, const Member& joiner, const ModelDescription& model,
                 Moment moment);
  bool HasRoom(const Job& job) const;

  void TakeChanges(const std::vector<MembershipChange>& changes, Moment moment);
  v1::Worker ViewWorker(const Member& member, Instant now) const;
  v1::Job ViewOf(const Job& job) const;

  // Why a pipeline, or the end of any job, cannot go on as it is.
  struct PipelineBreak {
    enum class Kind : uint8_t {
      kWorkerGone,    // lost, stopped, or another process now
      kWorkerFailed,  // it said so
      kNotSaved,      // its result cannot be received
    };
    Kind kind;
    std::string why;     // for people
    absl::Status error;  // of what failed
  };
  // Every event that breaks a pipeline comes here.
  void OnPipelineBroken(Job& job, const PipelineBreak& cause, Moment moment);

  void StartJob(Job& job, const PlacementVerdict& verdict, Moment moment);
  void BeginAttempt(Job& job, const PlacementVerdict& verdict, Moment moment);
  static void ResetProgress(Job& job);
  void PlaceOn(Job& job, const Plan& plan);
  void EndJob(Job& job, JobState state, const std::string& why, Moment moment);
  // advice: what to do next, as coordinator/advice.h has it.
  void FailJob(Job& job, const std::string& why, const std::string& advice,
               Moment moment);
  void OpenWeights(Job& job, Moment moment);
  void LetGo(const Job& job, v1::JobWorker& worker);
  void OnWorkerLost(const Member& member, Moment moment);
  void CheckWorkersOf(Job& job, Moment moment);
  std::string StoreText() const;
  void RefreshWhy(Job& job, Moment moment);

  // Nothing when it cannot be said.
  std::optional<v1::RunEstimate> EstimateOf(
      const JobSpec& spec, const ModelDescription& model,
      const std::vector<StageOfPlan>& stages) const;
  void TakeMeasurement(const Member& member,
                       const v1::Measurement& measurement);
  std::vector<MeasureWorker> MeasureWorkers() const;
  std::string FirstIdle(const std::vector<std::string>& names) const;
  std::vector<std::string> LiveNames() const;

  void Settle(Moment moment);
  void ServeQueue(Moment moment);
  bool HoldsTheQueue(Job& job, bool settled, std::string& slow, Moment moment);
  PlacementVerdict DecideStart(const JobSpec& spec,
                               const ModelDescription& model,
                               const std::vector<Candidate>& candidates) const;
  void RefreshOrders();
  StandingOrder OrderOf(WorkerId worker) const;

  void Put(const Job& job);
  void SetWhy(Job& job, const std::string& why);
  void AddEvent(const Job& job, const std::string& kind,
                const std::string& text, Moment moment);
  void AddNotice(WorkerId worker, const std::string& text, bool warn = false);

  const BrainPolicy policy_;
  Instant start_;  // later by the time in which nothing was done
  Membership membership_;
  std::map<JobId, Job> jobs_;
  std::set<JobId> open_;               // have not ended
  std::map<JobState, int64_t> ended_;  // how many of the others
  std::map<WorkerId, JobId> busy_;
  MeasureQueue measures_;
  StoredMeasurements measured_;
  std::set<WorkerId> drained_;
  int64_t term_;  // of the views that this coordinator makes
  GroupCounts group_counts_;
  JobId next_job_;
  std::map<StreamId, StandingOrder> sent_;  // the newest on every stream
  bool queue_changed_ = true;  // something a queued job may have waited for
  std::string store_error_;    // of the last transaction; empty: it was stored
  Actions actions_;
};

}  // namespace paceline
