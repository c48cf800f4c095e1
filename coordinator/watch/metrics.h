// Every metric of the coordinator; names and help stand only here.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/brain.h"
#include "core/obs/metrics.h"

namespace paceline {

constexpr char kWorkers[] = "paceline_coordinator_workers";
constexpr char kWorkerState[] = "paceline_coordinator_worker_state";
constexpr char kLosses[] = "paceline_coordinator_workers_lost_total";
constexpr char kJobs[] = "paceline_coordinator_jobs";
constexpr char kAttaches[] = "paceline_coordinator_attach_total";
constexpr char kHeartbeats[] = "paceline_coordinator_heartbeats_total";
constexpr char kOrders[] = "paceline_coordinator_orders_sent_total";
constexpr char kControl[] = "paceline_coordinator_control_requests_total";
constexpr char kTransactions[] =
    "paceline_coordinator_store_transaction_seconds";
constexpr char kStoreFailures[] = "paceline_coordinator_store_failures_total";
constexpr char kLoopCpu[] = "paceline_coordinator_loop_cpu_seconds";
constexpr char kQueueDepth[] = "paceline_coordinator_loop_queue_depth";
constexpr char kBuild[] = "paceline_coordinator_build_info";
constexpr char kDiskFree[] = "paceline_coordinator_disk_free_bytes";
constexpr char kCoordinatorCertificate[] =
    "paceline_coordinator_certificate_expiry_timestamp_seconds";
// One series per running job, removed when it ends.
constexpr char kJobPhase[] = "paceline_coordinator_job_phase";
constexpr char kJobStep[] = "paceline_coordinator_job_step";
constexpr char kJobSteps[] = "paceline_coordinator_job_steps";
constexpr char kJobLoss[] = "paceline_coordinator_job_loss";
constexpr char kJobAccuracy[] = "paceline_coordinator_job_test_accuracy";
constexpr char kJobRate[] = "paceline_coordinator_job_samples_per_second";
constexpr char kStepPredicted[] =
    "paceline_coordinator_job_step_predicted_seconds";
constexpr char kStepMeasured[] =
    "paceline_coordinator_job_step_measured_seconds";
// The same, one series per stage.
constexpr char kStagePredicted[] =
    "paceline_coordinator_job_stage_predicted_seconds";
constexpr char kStageMeasured[] =
    "paceline_coordinator_job_stage_measured_seconds";
constexpr char kReplicaMicroBatches[] =
    "paceline_coordinator_job_replica_micro_batches";

// These describe how pipelines outlive their workers.
constexpr char kRecoveries[] = "paceline_coordinator_recoveries_total";
constexpr char kRecoverySeconds[] = "paceline_coordinator_recovery_seconds";
constexpr char kReplayed[] = "paceline_coordinator_steps_replayed_total";
constexpr char kFloor[] = "paceline_coordinator_job_floor_step";
constexpr char kSnapshotAge[] = "paceline_coordinator_job_snapshot_age_steps";
constexpr char kGoodput[] = "paceline_coordinator_job_goodput_ratio";

// These describe round groups.
constexpr char kGroupMembers[] = "paceline_coordinator_job_group_members";
constexpr char kViews[] = "paceline_coordinator_group_views_total";
constexpr char kLeavers[] = "paceline_coordinator_group_leavers_total";

constexpr char kCheckpoints[] = "paceline_coordinator_checkpoints_total";
constexpr char kCheckpointSeconds[] =
    "paceline_coordinator_checkpoint_seconds_total";

// The kinds of work of the coordinator's loop.
enum class LoopWork : uint8_t {
  kEvent,   // a posted task
  kAnswer,  // to a client
  kOrders,  // to workers, and a batch's other actions
  kWatch,   // messages to watchers
  kMetrics,
  kUpkeep,  // of the store
};

// A worker's state as Prometheus shows it: idle, busy, measuring, suspect,
// lost, stopped.
std::string WorkerStateName(v1::WorkerState state);

// Thread-safe, except that Update() and methods marked "the loop's" are called
// on the loop.  The registry outlives this.
class CoordinatorMetrics {
 public:
  CoordinatorMetrics(MetricsRegistry& registry, const std::string& version);

  void CountAttach(absl::StatusCode code) {
    registry_.GetCounter(kAttaches, {absl::StatusCodeToString(code)}).Add();
  }
  void CountHeartbeat(absl::StatusCode code) {
    registry_.GetCounter(kHeartbeats, {absl::StatusCodeToString(code)}).Add();
  }
  void CountOrders(size_t orders) {
    registry_.GetCounter(kOrders).Add(static_cast<double>(orders));
  }
  void CountControl(const std::string& method, absl::StatusCode code) {
    registry_.GetCounter(kControl, {method, absl::StatusCodeToString(code)})
        .Add();
  }
  void ObserveTransaction(absl::Duration took, bool stored) {
    registry_.GetHistogram(kTransactions).Observe(absl::ToDoubleSeconds(took));
    if (!stored) registry_.GetCounter(kStoreFailures).Add();
  }
  void ObserveLoop(LoopWork work, absl::Duration cpu) {
    loop_cpu_[static_cast<size_t>(work)].Observe(absl::ToDoubleSeconds(cpu));
  }
  void SetQueueDepth(int64_t tasks) {
    registry_.GetGauge(kQueueDepth).Set(static_cast<double>(tasks));
  }
  // Asks the file system of `path`.  folder: the label's value.  Returns the
  // free bytes; a huge number where they are not known.
  int64_t SetDiskFree(const std::string& folder, const std::string& path);
  void SetCertificateExpiry(absl::Time not_after) {
    registry_.GetGauge(kCoordinatorCertificate)
        .Set(absl::ToDoubleSeconds(not_after - absl::UnixEpoch()));
  }

  // Sets all gauges of workers and jobs anew.
  // open: jobs that have not ended.  by_state: counts of all jobs.
  void Update(const std::vector<v1::Worker>& workers,
              const std::vector<v1::Job>& open,
              const std::map<v1::JobState, int64_t>& by_state);
  // The loop's.  Called once for each recovery.
  void CountRecovery(const v1::Recovery& recovery);
  // The loop's.  losses: workers lost since the start.
  void CountLosses(int64_t losses) {
    registry_.GetCounter(kLosses).RaiseTo(losses);
  }
  // The loop's.  counts: since the start.
  void CountGroups(const GroupCounts& counts);
  void CountCheckpoints(const CheckpointCounts& counts);

 private:
  void SetWorkers(const std::vector<v1::Worker>& workers);
  void SetDrift(const std::string& id, const v1::Job& job);
  void SetReplicas(const std::string& id, const v1::Job& job);
  void SetGroup(const std::string& id, const v1::Job& job);
  void SetRecovery(const std::string& id, const v1::Job& job);

  MetricsRegistry& registry_;
  std::vector<Histogram> loop_cpu_;  // by LoopWork
  std::set<JobId> running_;          // jobs with series
  std::set<std::string> workers_;    // names with series
  // Plan versions whose replicas have series.
  std::map<JobId, int64_t> replicas_;
};

}  // namespace paceline
