// The state that the parts of the Brain share: the workers, the jobs, who works
// for which job, and what the events since the last TakeActions() lead to.
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
#include "absl/time/time.h"
#include "coordinator/checkpoint_store.h"
#include "coordinator/group_event_log.h"
#include "coordinator/job_group.h"
#include "coordinator/job_store.h"
#include "coordinator/measure_queue.h"
#include "coordinator/placement.h"
#include "coordinator/plan_watch.h"
#include "coordinator/records.h"
#include "coordinator/recovery_meter.h"
#include "coordinator/weights_store.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/cluster/eviction.h"
#include "core/cluster/member_report.h"
#include "core/cluster/membership.h"
#include "core/recover/job_recovery.h"

namespace paceline {

// An instruction may take so many times what is predicted or was measured.
inline constexpr double kPatience = 5;

struct BrainPolicy {
  MembershipPolicy membership;
  // How long a pipeline waits for lost workers before it goes on from less than
  // was safe, and an inference job that has not begun for any lost worker:
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

// A heartbeat whose contents were checked.
struct WorkerReport {
  v1::Heartbeat heartbeat;
  std::optional<MemberReport> member;  // heartbeat.run.member
};

// Something a person should see in the log.
struct Notice {
  bool warn = false;
  std::string text;
  JobId job;
  WorkerId worker;
};

// The consequences of the events since the last TakeActions().  Writes come
// first: nothing else may be seen outside before they are stored.
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
    CheckpointId id;
    std::set<int64_t> steps;  // kRetain
    CheckpointOrder order;    // kFetch
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

// Samples and time of recent steps, for samples_per_second only.
struct Rate {
  int64_t step;
  int64_t samples;
  int64_t unix_ms;
};
// A job as the coordinator knows it: its record, and what is not stored.
struct JobEntry {
  JobRecord record;
  std::deque<Rate> recent;
  int64_t flow_samples = 0;  // of an inference job, in the newest of recent
  bool saving = false;       // all workers are done; the file is being closed
  std::optional<Instant> saved_at;  // the result is stored
  bool restored = false;            // loaded at start
  // Queued: it waits for workers that are not there, and holds up no other.
  bool may_be_passed = false;
  JobId behind;  // queued: that one is before it; what it needs was not judged
  PlacementMemo start;    // on those that are idle
  PlacementMemo someday;  // on all that are there, were they idle
  int skip_runs = 0;      // that have an event
  // Steps that records told of: all up to counted_through, and these, each with
  // the parts that are known of its batch.
  int64_t counted_through = 0;
  std::map<int64_t, v1::StepRecord> counted;
  std::map<WorkerId, int64_t> told;  // the last step of which each has told
  // Since when its workers are known to prepare, those that do.
  std::map<WorkerId, Instant> preparing_since;

  // Set while a pipeline trains: what becomes of it when a worker is lost.
  std::unique_ptr<JobRecovery> recovery;
  RecoveryMeter meter;
  // The placement that was decided last for it.
  PlacementVerdict verdict;
  PlacementMemo placed;        // on those that have no other job
  PlacementMemo without_lost;  // beside it, without the stages that are lost
  // By process of its present attempt: what it says of its compute thread and
  // of its links.
  struct Watched {
    MemberWork work;
    MemberReport links;
  };
  std::map<MemberId, Watched> watched;
  // The state that has applied most, among those that workers kept of the
  // present attempt.
  v1::KeptState most_kept;
  // Workers that get no stage, since a link of theirs was cut then.
  std::map<WorkerId, Instant> cut_off;
  // Seconds of a micro-batch through all layers, at most; 0: not known.
  double micro_batch_seconds = 0;
  PlanWatch watch;
  // The attempt's marks of an inference job, by `through`, as each worker told
  // of them; those below Job.predicted are dropped.
  std::map<WorkerId, std::map<int64_t, v1::PredictedMark>> marks;
  // Set while a data-parallel job runs.
  std::optional<JobGroup> group;
  GroupEventLog events;
  bool said_running = false;
  bool said_deadline = false;  // that it is too short
  // The step of the newest record with a cosine, by the server that sent it:
  // servers take turns, and their records come in any order.
  std::map<int64_t, int64_t> cosine_steps;
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
  // "paused", "moving" or "recovering" for a pipeline that does not run; else
  // empty.
  absl::string_view Interruption() const;
  bool IsPaused() const { return Interruption() == "paused"; }
  // Processes that cannot become members, so that they are not asked twice.
  std::map<WorkerId, Incarnation> unfit;
  // Those for whom there was no memory in a group of so many.
  std::map<WorkerId, std::pair<Incarnation, size_t>> cramped;
};

// Thread-compatible; lives on the coordinator's loop.
struct MeshState {
  MeshState(const BrainPolicy& policy, Instant start)
      : policy(policy), start(start), membership(policy.membership, start) {}

  // --- workers ---

  // worker: its name, or its number.  Errors: NotFound  lists those there are
  absl::StatusOr<const Member*> FindMember(const std::string& worker) const;
  std::string NameOf(WorkerId worker) const;
  std::vector<std::string> LiveNames() const;
  // The neighbours whose links a worker says are broken, and how.
  std::map<WorkerId, std::string> BrokenLinks(
      const std::vector<PeerReport>& peers) const;
  std::vector<Candidate> Candidates() const;  // by id
  // Tells apart meshes in which a job may be placed otherwise.
  uint64_t PlacementKey() const;
  // With today's names and addresses.
  std::vector<StagePlacement> Place(
      const std::vector<StageOfPlan>& stages) const;

  // --- jobs; null: there is none ---

  JobEntry* FindJob(JobId id);
  JobEntry* FindRunning(const Fence& fence);
  // The job that has the worker.
  JobEntry* JobOf(WorkerId worker);
  const JobEntry* JobOf(WorkerId worker) const;
  // Copies: they may end while one goes through them.
  std::vector<JobEntry*> OpenJobs() { return JobsOf(open); }
  std::vector<JobEntry*> RunningJobs() { return JobsOf(running); }
  std::vector<JobEntry*> JobsOf(const std::set<JobId>& ids);

  // --- changes ---

  // The record is to be stored.
  void Put(const JobEntry& job);
  void SetWhy(JobEntry& job, const std::string& text);
  void RefreshWhy(JobEntry& job, Moment moment);
  void AddEvent(const JobEntry& job, const std::string& kind,
                const std::string& text, Moment moment);
  void AddNotice(WorkerId worker, const std::string& text, bool warn = false);
  // Has the job's file opened, to receive its weights or predictions.
  void OpenWeights(JobEntry& job, Moment moment);
  // The next attempt, which is durable before any worker is told of it, on the
  // workers of the plan.  It goes on after `step` steps of those before.
  void BeginAttempt(JobEntry& job, const PlacementVerdict& verdict,
                    int64_t attempt, int64_t step, Moment moment);
  // The worker works for this job no more.
  void LetGo(const JobEntry& job, v1::JobWorker& worker);
  void EndJob(JobEntry& job, JobState state, const std::string& why,
              Moment moment);
  // advice: what to do next, as coordinator/advice.h has it.
  void FailJob(JobEntry& job, const std::string& why, const std::string& advice,
               Moment moment);
  // That the store refuses writes; empty: it does not.
  std::string StoreText() const;

  // It gets nothing new: somebody has drained it, or its process ends.
  bool IsDrained(WorkerId id) const {
    return drained.contains(id) || leaving.contains(id);
  }

  const BrainPolicy policy;
  Instant start;  // later by the time in which nothing was done
  Membership membership;
  std::map<JobId, JobEntry> jobs;     // open ones, and some that have ended
  std::set<JobId> open;               // have not ended
  std::set<JobId> running;            // of these, those that do not wait
  std::map<JobState, int64_t> ended;  // how many of all others there are
  // The last of those, which are in `jobs`, by ended_unix_ms.
  std::set<std::pair<int64_t, JobId>> by_end;
  std::string slow;        // what keeps those for whom the queue's head waits
  int64_t placements = 0;  // that were made
  std::map<WorkerId, JobId> busy;
  // Processes that start anew, each at this CPU capability, before the next
  // queued job begins.  Until another process of the worker is there, or it is
  // lost.
  std::map<WorkerId, std::string> settling;
  MeasureQueue measures;
  StoredMeasurements measured;
  std::set<WorkerId> drained;
  // Their processes are about to end on request.
  std::set<WorkerId> leaving;
  // ROLE/NAME: certificates signed up to this unix_ms count no more.
  std::map<std::string, int64_t> revoked;
  int64_t term = 0;           // of the views that this coordinator makes
  OrderCounter orders;        // numbers of standing orders
  bool queue_changed = true;  // something a queued job may have waited for
  // That have ended since somebody asked.
  std::vector<v1::Recovery> recoveries;
  std::string store_error;  // of the last transaction; empty: it was stored
  Actions actions;
};

}  // namespace paceline
