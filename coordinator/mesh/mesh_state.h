// The state that the parts of the Brain share: the workers, the jobs, the job
// of each worker, and the actions that events since the last TakeActions()
// cause.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/jobs/checkpoint_store.h"
#include "coordinator/jobs/job_group.h"
#include "coordinator/jobs/job_store.h"
#include "coordinator/jobs/records.h"
#include "coordinator/jobs/recovery_meter.h"
#include "coordinator/jobs/weights_store.h"
#include "coordinator/mesh/measure_queue.h"
#include "coordinator/place/placement.h"
#include "coordinator/place/plan_watch.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/cluster/eviction.h"
#include "core/cluster/membership.h"
#include "core/recover/job_recovery.h"

namespace paceline {

// An instruction may take its predicted or measured time times this.
inline constexpr double kPatience = 5;

struct BrainPolicy {
  MembershipPolicy membership;
  // A pipeline waits this long for lost workers before it restores a cut below
  // the floor; an inference job that has not begun waits so for any lost
  // worker.  Loading LibTorch again takes seconds on a small machine.
  absl::Duration return_period = absl::Seconds(20);
  // A worker that prepares for longer is named in the why of its job, and in
  // that of jobs that wait for it.
  absl::Duration preparing_bound = absl::Seconds(30);
  // A live process that was removed from a round group is asked to start anew
  // after first_pause; each further time the pause doubles.
  absl::Duration first_pause = absl::Seconds(1);
  absl::Duration longest_pause = absl::Minutes(1);
};

// A heartbeat whose contents were checked.
struct WorkerReport {
  v1::Heartbeat heartbeat;
  std::optional<MemberReport> member;  // heartbeat.run.member
};

// A line for the log.
struct Notice {
  bool warn = false;
  std::string text;
  JobId job;
  WorkerId worker;
};

// The consequences of the events since the last TakeActions().  The writes are
// stored before anything else is visible outside.
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
  struct Checkpoint {
    enum class Kind : uint8_t { kFetch, kKeep, kRetain };
    Kind kind;
    CheckpointId id = {};          // kKeep; kRetain: the job alone
    std::set<int64_t> steps = {};  // kRetain
    CheckpointOrder order = {};    // kFetch
  };

  StoreBatch writes;
  std::vector<Ack> acks;
  std::vector<Order> orders;
  std::vector<End> ends;
  std::vector<Weights> weights;
  std::vector<Checkpoint> checkpoints;
  // To all clients that wait for an export of the job.
  std::vector<std::pair<JobId, absl::StatusOr<CheckpointId>>> exports;
  std::vector<Notice> notices;
};

// One recent step, for samples_per_second only.
struct Rate {
  int64_t step;
  int64_t samples;
  int64_t unix_ms;
};

// The state of a queued job; JobQueue's.
struct QueuedState {
  // It waits for absent workers and holds up no other job.
  bool may_be_passed = false;
  // That job is before this one, so this one's needs were not judged.
  JobId behind;
  PlacementMemo start;    // on idle workers
  PlacementMemo someday;  // on all workers present, as if idle
  // `start`'s, while the first attempt begins.
  const PlacementVerdict* begins = nullptr;
};

// The progress of the present attempt; job_progress.h's.
struct ProgressState {
  // The steps that were recorded: all up to counted_through, and those in
  // `counted`, each with the known parts of its batch.
  int64_t counted_through = 0;
  std::map<int64_t, v1::StepRecord> counted;
  std::map<WorkerId, int64_t> told;  // the last step that each recorded
  std::deque<Rate> recent;
  int64_t flow_samples = 0;  // inference: finished as of recent.back()
  int skip_runs = 0;         // with an event of their own; of all attempts
  // When each worker that prepares was first heard to.
  std::map<WorkerId, Instant> preparing_since;
  // Inference: each worker's marks of the attempt, by `through`; those below
  // Job.predicted are dropped.
  std::map<WorkerId, std::map<int64_t, v1::PredictedMark>> marks;
};

// Where a job runs, and how well; Pipelines'.
struct AttemptState {
  RecoveryMeter meter;
  PlacementVerdict verdict;    // of the placement that was decided last
  PlacementMemo placed;        // on workers without another job
  PlacementMemo without_lost;  // on the same, without lost stages
  // Each process's reports on its compute thread and its links, by process of
  // the present attempt.
  struct Watched {
    MemberWork work;
    MemberReport links;
  };
  std::map<MemberId, Watched> watched;
  // The newest state that a worker kept of the present attempt.
  v1::KeptState most_kept;
  // Workers that get no stage, by the time when one of their links was cut.
  std::map<WorkerId, Instant> cut_off;
  // The longest time of a micro-batch through all layers; 0: not known.
  double micro_batch_seconds = 0;
  PlanWatch watch;
  bool looks = false;  // for a better plan, which is being made
};

// The round group of the present attempt, and what Groups notes of it.
struct GroupState : JobGroup {
  using JobGroup::JobGroup;

  // Its members deposit the first state from this step on; 0: none.
  int64_t deposit_from = 0;
  bool said_running = false;
  bool said_deadline = false;  // that the round's deadline is short
  // Evaluations that may lack parts, by step.
  struct OpenEvaluation {
    v1::EvaluationRecord sum;
    std::set<WorkerId> members;  // of the view when the first part came
  };
  std::map<int64_t, OpenEvaluation> evaluating;
  Instant save_again;  // earliest time, after an incomplete upload
  int incomplete_saves = 0;
  // When a process that was removed shall start anew.
  struct Return {
    int times = 0;
    Instant due;
  };
  std::map<WorkerId, Return> returns;
  std::set<WorkerId> renew;  // shall start anew now
  // Processes that cannot become members; they are not asked twice.
  std::map<WorkerId, Incarnation> unfit;
  // Processes for which a group of that many members lacked memory.
  std::map<WorkerId, std::pair<Incarnation, size_t>> cramped;
};

// The round groups of all attempts; Groups'.
struct GroupsState {
  GroupEventLog events;
  // The step of each server's newest record with a cosine: servers take turns,
  // and their records come in any order.
  std::map<int64_t, int64_t> cosine_steps;
  // As in the store.  After the loss of a group that trained, the job's
  // injected faults count as spent, since they would strike again.
  KeptView kept;
  // Consecutive attempts that ended before a worker was ready, or before a
  // step.
  int false_starts = 0;
  int lost = 0;
  int64_t most_evaluated = 0;  // samples of the largest evaluation
};

// A job as the coordinator knows it: its record and its unstored state.
struct JobEntry {
  // "paused", "moving" or "recovering" for a pipeline that does not run, else
  // "".
  absl::string_view Interruption() const;
  bool IsPaused() const { return Interruption() == "paused"; }

  JobRecord record;
  bool restored = false;            // loaded at start
  bool saving = false;              // all workers are done
  std::optional<Instant> saved_at;  // the result is stored
  absl::Status lost_error;          // of the last member that failed
  QueuedState queued;
  ProgressState progress;
  // Set while the job runs: decides how it goes on after a loss.
  std::unique_ptr<JobRecovery> recovery;
  AttemptState attempt;
  // Set while a data-parallel job runs.
  std::optional<GroupState> group;
  GroupsState groups;
};

// Thread-compatible; lives on the coordinator's loop.
struct MeshState {
  MeshState(const BrainPolicy& policy, Instant start)
      : policy(policy), start(start), membership(policy.membership, start) {}

  // --- workers ---

  // worker: its name or its number.  Errors: NotFound  lists all workers
  absl::StatusOr<const Member*> FindMember(const std::string& worker) const;
  std::string NameOf(WorkerId worker) const;
  std::vector<std::string> LiveNames() const;
  // The reason of each broken link that a worker reports, by neighbour.
  std::map<WorkerId, std::string> BrokenLinks(
      const std::vector<PeerReport>& peers) const;
  std::vector<Candidate> Candidates() const;  // by id
  // Differs between meshes in which a job's placement may differ.
  uint64_t PlacementKey() const;
  using InputsOfPlacement =
      absl::FunctionRef<std::shared_ptr<const PlacementInputs>()>;
  // Where an attempt of the job may begin, made where `memo` has no answer.
  // Null: it is being made.
  const PlacementVerdict* PlacementOf(PlacementMemo& memo, uint64_t key,
                                      std::vector<double> slowness,
                                      const JobSpec& spec,
                                      const InputsOfPlacement& inputs);
  // Adds the present names and addresses.
  std::vector<StagePlacement> Place(
      const std::vector<StageOfPlan>& stages) const;

  // --- jobs; null: there is none ---

  JobEntry* FindJob(JobId id) {
    const auto found = jobs.find(id);
    return found == jobs.end() ? nullptr : &found->second;
  }
  JobEntry* FindRunning(const Fence& fence);
  // The job that has the worker.
  JobEntry* JobOf(WorkerId worker) {
    const auto found = busy.find(worker);
    return found == busy.end() ? nullptr : &jobs.at(found->second);
  }
  const JobEntry* JobOf(WorkerId worker) const {
    const auto found = busy.find(worker);
    return found == busy.end() ? nullptr : &jobs.at(found->second);
  }
  // These return copies: a job may end during the caller's loop.
  std::vector<JobEntry*> OpenJobs() { return JobsOf(open); }
  std::vector<JobEntry*> RunningJobs() { return JobsOf(running); }
  std::vector<JobEntry*> JobsOf(const std::set<JobId>& ids);

  // --- changes ---

  // Stores the record with the next batch.
  void Put(const JobEntry& job);
  void SetWhy(JobEntry& job, const std::string& text);
  void RefreshWhy(JobEntry& job, Moment moment);
  // parts: of the text, as for absl::StrCat().
  template <typename... Parts>
  void AddEvent(const JobEntry& job, Moment moment, const std::string& kind,
                const Parts&... parts) {
    PutEvent(job, moment, kind, absl::StrCat(parts...));
  }
  void PutEvent(const JobEntry& job, Moment moment, const std::string& kind,
                const std::string& text);
  void AddNotice(WorkerId worker, const std::string& text, bool warn = false) {
    actions.notices.push_back({warn, text, JobId{}, worker});
  }
  // Opens the job's file for its weights or predictions.
  void OpenWeights(JobEntry& job, Moment moment);
  // Begins an attempt on the plan's workers, after `step` steps of earlier
  // attempts.  It is durable before any worker learns of it.
  void BeginAttempt(JobEntry& job, const PlacementVerdict& verdict,
                    int64_t attempt, int64_t step, Moment moment);
  // The worker leaves the job.
  void LetGo(const JobEntry& job, v1::JobWorker& worker);
  void EndJob(JobEntry& job, v1::JobState state, const std::string& why,
              Moment moment);
  // advice: the person's next action; see coordinator/jobs/job_text.h.
  void FailJob(JobEntry& job, const std::string& why, const std::string& advice,
               Moment moment);
  // Says that the store refuses writes; empty: it does not.
  std::string StoreText() const {
    if (store_error.empty()) return "";
    return absl::StrCat("the coordinator cannot store its state: ",
                        store_error);
  }

  // True where the worker gets no new work: it is drained, or its process ends.
  bool IsDrained(WorkerId id) const {
    return drained.contains(id) || leaving.contains(id);
  }

  const BrainPolicy policy;
  Instant start;  // moved later by standstills
  Membership membership;
  std::map<JobId, JobEntry> jobs;         // open ones, and some that have ended
  std::set<JobId> open;                   // have not ended
  std::set<JobId> running;                // of these, the ones that do not wait
  std::map<v1::JobState, int64_t> ended;  // counts of all others
  // The ended jobs in `jobs`, by ended_unix_ms.
  std::set<std::pair<int64_t, JobId>> by_end;
  std::string slow;        // what delays the head of the queue
  int64_t placements = 0;  // begun so far
  PlaceLater place_later;  // null: placements are made at once
  std::map<WorkerId, JobId> busy;
  // Workers that start anew at this CPU capability before the next queued job
  // begins.  An entry ends when the new process attaches or the worker is lost.
  std::map<WorkerId, std::string> settling;
  MeasureQueue measures;
  StoredMeasurements measured;
  std::set<WorkerId> drained;
  // Workers whose processes are about to end on request.
  std::set<WorkerId> leaving;
  // By ROLE/NAME: certificates signed up to this unix_ms are revoked.
  std::map<std::string, int64_t> revoked;
  int64_t term = 0;           // of this coordinator's views
  OrderCounter orders;        // numbers of standing orders
  bool queue_changed = true;  // a queued job may start now
  // Recoveries that ended since the last TakeRecoveries().
  std::vector<v1::Recovery> recoveries;
  std::string store_error;  // of the last transaction; empty: none
  Actions actions;
};

}  // namespace paceline
