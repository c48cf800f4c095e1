#include "coordinator/watch/metrics.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace paceline {
namespace {

// A job's phases; the metric numbers them from 1.
constexpr absl::string_view kPhases[] = {"preparing",  "training", "moving",
                                         "recovering", "paused",   "predicting",
                                         "saving"};

// By LoopWork.
constexpr const char* kLoopWork[] = {"event", "answer",  "orders",
                                     "watch", "metrics", "upkeep"};

// 0: not in kPhases.
int PhaseNumber(const std::string& phase) {
  const auto* const found =
      std::find(std::begin(kPhases), std::end(kPhases), phase);
  return found == std::end(kPhases)
             ? 0
             : 1 + static_cast<int>(found - std::begin(kPhases));
}

struct Family {
  const char* name;
  const char* help;
  std::vector<std::string> labels = {};
};

const Family kGauges[] = {
    {kWorkers, "Workers by state.", {"state"}},
    {kWorkerState,
     "A worker's state: 1 idle, 2 busy, 3 suspect, 4 lost, 5 measuring, 6 "
     "stopped.",
     {"worker"}},
    {kJobs, "Jobs by state.", {"state"}},
    {kQueueDepth, "Tasks that wait for the loop."},
    {kBuild, "Always 1; the label says what runs.", {"version"}},
    {kJobPhase,
     "What a running job does: 1 preparing, 2 training, 3 moving, "
     "4 recovering, 5 paused, 6 predicting, 7 saving.",
     {"job"}},
    {kJobStep, "Optimizer updates done.", {"job"}},
    {kJobSteps, "Optimizer updates in all; 0: not known.", {"job"}},
    {kJobLoss, "Mean loss of the newest step.", {"job"}},
    {kJobAccuracy, "Accuracy of the newest evaluation, 0 to 1.", {"job"}},
    {kJobRate, "Training samples a second, lately.", {"job"}},
    {kStepPredicted, "Seconds that a step was predicted to take.", {"job"}},
    {kStepMeasured, "Seconds that a step takes.", {"job"}},
    {kStagePredicted,
     "Seconds of a micro-batch, forward and backward, as predicted.",
     {"job", "stage"}},
    {kStageMeasured,
     "Seconds of a micro-batch, forward and backward, as measured.",
     {"job", "stage"}},
    {kReplicaMicroBatches,
     "Micro-batches that a worker has computed in this attempt, of a stage "
     "that several workers hold.",
     {"job", "stage", "worker"}},
    {kFloor, "The newest step whose state lies on several machines.", {"job"}},
    {kSnapshotAge,
     "Steps that would be run again if a worker was lost.",
     {"job"}},
    {kGoodput, "Steps that count, of all that were computed, 0 to 1.", {"job"}},
    {kGroupMembers,
     "Processes in a job's round group: members, and listeners that shall "
     "become some.",
     {"job", "state"}},
    {kDiskFree,
     "Bytes that are free where the coordinator writes.",
     {"folder"}},
    {kCoordinatorCertificate,
     "Unix time until which the coordinator's certificate is valid."}};

// Those without labels begin with 0.
const Family kCounters[] = {
    {kLosses, "Times that a worker was lost."},
    {kAttaches, "Attach attempts by result.", {"code"}},
    {kHeartbeats, "Heartbeats by result.", {"code"}},
    {kOrders, "Standing orders sent."},
    {kControl, "Calls of clients by method and result.", {"method", "code"}},
    {kStoreFailures, "Transactions that failed."},
    {kRecoveries,
     "Times that a pipeline came back to where it was when something of it "
     "was lost."},
    {kReplayed, "Steps of pipelines that were run again."},
    {kViews, "Views of round groups that were made."},
    {kLeavers, "Processes that left a round group, by reason.", {"reason"}},
    {kCheckpoints, "Checkpoints that were kept, and that failed.", {"outcome"}},
    {kCheckpointSeconds, "Seconds that those took which were kept."}};

}  // namespace

std::string WorkerStateName(v1::WorkerState state) {
  return absl::AsciiStrToLower(
      absl::StripPrefix(v1::WorkerState_Name(state), "WORKER_STATE_"));
}

CoordinatorMetrics::CoordinatorMetrics(MetricsRegistry& registry,
                                       const std::string& version)
    : registry_(registry) {
  for (const Family& gauge : kGauges) {
    registry.DeclareGauge(gauge.name, gauge.help, gauge.labels);
  }
  for (const Family& counter : kCounters) {
    registry.DeclareCounter(counter.name, counter.help, counter.labels);
    if (counter.labels.empty()) registry.GetCounter(counter.name);
  }
  registry.DeclareHistogram(kTransactions,
                            "Seconds that a transaction of the store took.",
                            {0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2});
  registry.DeclareHistogram(
      kLoopCpu,
      "CPU seconds of the loop's thread for one thing, without the store's "
      "transactions.",
      {0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1}, {"work"});
  for (const char* work : kLoopWork) {
    loop_cpu_.push_back(registry.GetHistogram(kLoopCpu, {work}));
  }
  registry.DeclareHistogram(kRecoverySeconds,
                            "Seconds of these recoveries, by phase.",
                            {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 60}, {"phase"});
  for (const RecoveryPart& part : kRecoveryParts) {
    registry.GetHistogram(kRecoverySeconds, {part.name});
  }
  registry.GetCounter(kAttaches,
                      {absl::StatusCodeToString(absl::StatusCode::kOk)});
  for (int i = 0; i < kGroupExits; ++i) {
    registry.GetCounter(kLeavers, {std::string(GroupExitName(GroupExit(i)))});
  }
  registry.GetGauge(kBuild, {version}).Set(1);
  CountCheckpoints({});
  Update({}, {}, {});
}

int64_t CoordinatorMetrics::SetDiskFree(const std::string& folder,
                                        const std::string& path) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(path, error);
  if (error) return std::numeric_limits<int64_t>::max();
  const auto bytes = static_cast<int64_t>(space.available);
  registry_.GetGauge(kDiskFree, {folder}).Set(bytes);
  return bytes;
}

void CoordinatorMetrics::SetWorkers(const std::vector<v1::Worker>& workers) {
  std::map<v1::WorkerState, int> workers_by_state;
  std::set<std::string> present;
  for (const v1::Worker& worker : workers) {
    ++workers_by_state[worker.state()];
    const std::string& name = worker.registration().name();
    registry_.GetGauge(kWorkerState, {name}).Set(worker.state());
    present.insert(name);
  }
  for (const std::string& name : workers_) {
    if (!present.contains(name)) registry_.RemoveSeries(kWorkerState, name);
  }
  workers_ = std::move(present);
  for (int i = 1; i < v1::WorkerState_ARRAYSIZE; ++i) {
    const auto state = v1::WorkerState(i);
    registry_.GetGauge(kWorkers, {WorkerStateName(state)})
        .Set(workers_by_state[state]);
  }
}

void CoordinatorMetrics::Update(
    const std::vector<v1::Worker>& workers, const std::vector<v1::Job>& jobs,
    const std::map<v1::JobState, int64_t>& by_state) {
  SetWorkers(workers);
  std::set<JobId> running;
  for (const v1::Job& job : jobs) running.insert(JobId{job.id()});
  for (const JobId ended : running_) {
    if (running.contains(ended)) continue;
    for (const Family& gauge : kGauges) {
      if (gauge.labels.empty() || gauge.labels[0] != "job") continue;
      registry_.RemoveSeries(gauge.name, absl::StrCat(ended.value));
    }
    replicas_.erase(ended);
  }
  running_ = std::move(running);
  for (const v1::Job& job : jobs) {
    const std::string id = absl::StrCat(job.id());
    registry_.GetGauge(kJobPhase, {id}).Set(PhaseNumber(job.phase()));
    registry_.GetGauge(kJobStep, {id}).Set(job.step());
    registry_.GetGauge(kJobSteps, {id}).Set(job.steps());
    registry_.GetGauge(kJobRate, {id}).Set(job.samples_per_second());
    SetDrift(id, job);
    SetReplicas(id, job);
    SetGroup(id, job);
    SetRecovery(id, job);
    if (job.has_loss()) registry_.GetGauge(kJobLoss, {id}).Set(job.loss());
    if (job.has_accuracy()) {
      registry_.GetGauge(kJobAccuracy, {id}).Set(job.accuracy());
    }
  }
  for (int i = 1; i < v1::JobState_ARRAYSIZE; ++i) {
    const auto count = by_state.find(v1::JobState(i));
    registry_.GetGauge(kJobs, {JobStateName(v1::JobState(i))})
        .Set(count == by_state.end() ? 0 : static_cast<double>(count->second));
  }
}

void CoordinatorMetrics::CountRecovery(const v1::Recovery& recovery) {
  registry_.GetCounter(kRecoveries).Add();
  registry_.GetCounter(kReplayed).Add(static_cast<double>(recovery.again()));
  for (const RecoveryPart& part : kRecoveryParts) {
    registry_.GetHistogram(kRecoverySeconds, {part.name})
        .Observe((recovery.seconds().*part.seconds)());
  }
}

void CoordinatorMetrics::SetRecovery(const std::string& id,
                                     const v1::Job& job) {
  if (!job.has_floor_step()) return;
  registry_.GetGauge(kFloor, {id}).Set(job.floor_step());
  registry_.GetGauge(kSnapshotAge, {id})
      .Set(std::max<int64_t>(0, job.step() - job.floor_step()));
  const auto computed =
      static_cast<double>(job.step() + job.recovery().replayed_steps());
  registry_.GetGauge(kGoodput, {id})
      .Set(computed == 0 ? 1 : static_cast<double>(job.step()) / computed);
}

void CoordinatorMetrics::CountGroups(const GroupCounts& counts) {
  registry_.GetCounter(kViews).RaiseTo(counts.views);
  for (const auto& [exit, count] : counts.leavers) {
    registry_.GetCounter(kLeavers, {std::string(GroupExitName(exit))})
        .RaiseTo(count);
  }
}

void CoordinatorMetrics::CountCheckpoints(const CheckpointCounts& counts) {
  registry_.GetCounter(kCheckpoints, {"kept"}).RaiseTo(counts.kept);
  registry_.GetCounter(kCheckpoints, {"failed"}).RaiseTo(counts.failed);
  registry_.GetCounter(kCheckpointSeconds)
      .RaiseTo(absl::ToDoubleSeconds(counts.took));
}

void CoordinatorMetrics::SetDrift(const std::string& id, const v1::Job& job) {
  if (job.has_estimate()) {
    registry_.GetGauge(kStepPredicted, {id}).Set(job.estimate().step_seconds());
  }
  if (job.timed_steps() > 0) {
    registry_.GetGauge(kStepMeasured, {id}).Set(job.step_seconds());
  }
  // The slowest replica counts: the others wait for it.
  std::map<int, double> predicted, measured;
  for (const v1::StageDrift& drift : job.drift()) {
    double& planned = predicted[drift.stage()];
    double& found = measured[drift.stage()];
    planned = std::max(planned, drift.predicted_seconds());
    found = std::max(found, drift.measured_seconds());
  }
  for (const auto& [family, seconds] : {std::pair(kStagePredicted, &predicted),
                                        std::pair(kStageMeasured, &measured)}) {
    for (const auto& [stage, value] : *seconds) {
      if (value > 0) {
        registry_.GetGauge(family, {id, absl::StrCat(stage)}).Set(value);
      }
    }
  }
}

void CoordinatorMetrics::SetReplicas(const std::string& id,
                                     const v1::Job& job) {
  int64_t& shown = replicas_[JobId{job.id()}];
  if (shown != job.plan_version()) {
    registry_.RemoveSeries(kReplicaMicroBatches, id);
    shown = job.plan_version();
  }
  std::map<int, int> replicas;
  for (const v1::StageDrift& drift : job.drift()) ++replicas[drift.stage()];
  const int known = std::min(job.drift_size(), job.stage_times_size());
  for (int i = 0; i < known; ++i) {
    const v1::StageDrift& drift = job.drift(i);
    if (replicas[drift.stage()] == 1) continue;
    for (const v1::JobWorker& worker : job.workers()) {
      if (worker.id() != drift.worker_id() || worker.has_member()) continue;
      registry_
          .GetGauge(kReplicaMicroBatches,
                    {id, absl::StrCat(drift.stage()), worker.name()})
          .Set(static_cast<double>(job.stage_times(i).micro_batches()));
    }
  }
}

void CoordinatorMetrics::SetGroup(const std::string& id, const v1::Job& job) {
  int members = 0;
  int listeners = 0;
  for (const v1::JobWorker& worker : job.workers()) {
    if (worker.has_member()) {
      ++(worker.member().listens() ? listeners : members);
    }
  }
  if (members + listeners == 0) return;
  registry_.GetGauge(kGroupMembers, {id, "member"}).Set(members);
  registry_.GetGauge(kGroupMembers, {id, "listener"}).Set(listeners);
}

}  // namespace paceline
