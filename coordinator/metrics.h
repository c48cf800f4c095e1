// Every metric of the coordinator: names and help are here and nowhere else.
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
constexpr char kJobs[] = "paceline_coordinator_jobs";
constexpr char kAttaches[] = "paceline_coordinator_attach_total";
constexpr char kHeartbeats[] = "paceline_coordinator_heartbeats_total";
constexpr char kOrders[] = "paceline_coordinator_orders_sent_total";
constexpr char kControl[] = "paceline_coordinator_control_requests_total";
constexpr char kTransactions[] =
    "paceline_coordinator_store_transaction_seconds";
constexpr char kStoreFailures[] = "paceline_coordinator_store_failures_total";
constexpr char kQueueDepth[] = "paceline_coordinator_loop_queue_depth";
constexpr char kBuild[] = "paceline_coordinator_build_info";
// One series a running job; removed when it ends.
constexpr char kJobStep[] = "paceline_coordinator_job_step";
constexpr char kJobSteps[] = "paceline_coordinator_job_steps";
constexpr char kJobLoss[] = "paceline_coordinator_job_loss";
constexpr char kJobAccuracy[] = "paceline_coordinator_job_test_accuracy";
constexpr char kJobRate[] = "paceline_coordinator_job_samples_per_second";
constexpr char kStepPredicted[] =
    "paceline_coordinator_job_step_predicted_seconds";
constexpr char kStepMeasured[] =
    "paceline_coordinator_job_step_measured_seconds";
// The same, one series a stage.
constexpr char kStagePredicted[] =
    "paceline_coordinator_job_stage_predicted_seconds";
constexpr char kStageMeasured[] =
    "paceline_coordinator_job_stage_measured_seconds";

// These describe how pipelines outlive their workers.
constexpr char kRecoveries[] = "paceline_coordinator_recoveries_total";
constexpr char kRecoverySeconds[] = "paceline_coordinator_recovery_seconds";
constexpr char kReplayed[] = "paceline_coordinator_steps_replayed_total";
constexpr char kFloor[] = "paceline_coordinator_job_floor_step";
constexpr char kSnapshotAge[] = "paceline_coordinator_job_snapshot_age_steps";
constexpr char kGoodput[] = "paceline_coordinator_job_goodput_ratio";

// These describe round groups.
constexpr char kGroupMembers[] = "paceline_coordinator_job_group_members";
constexpr char kGroupPaused[] = "paceline_coordinator_job_group_paused";
constexpr char kViews[] = "paceline_coordinator_group_views_total";
constexpr char kLeavers[] = "paceline_coordinator_group_leavers_total";

constexpr char kCheckpoints[] = "paceline_coordinator_checkpoints_total";
constexpr char kCheckpointSeconds[] =
    "paceline_coordinator_checkpoint_seconds_total";

// A worker's state as Prometheus shows it: idle, busy, measuring, suspect,
// lost, stopped.
std::string WorkerStateName(v1::WorkerState state);

// Thread-safe, but Update(), which is the loop's.  The registry outlives it.
class CoordinatorMetrics {
 public:
  CoordinatorMetrics(MetricsRegistry& registry, const std::string& version);

  void CountAttach(absl::StatusCode code);
  void CountHeartbeat(absl::StatusCode code);
  void CountOrders(size_t orders);
  void CountControl(const std::string& method, absl::StatusCode code);
  void ObserveTransaction(absl::Duration took, bool stored);
  void SetQueueDepth(int64_t tasks);

  // Sets all gauges of workers and jobs anew.
  // open: jobs that have not ended.  by_state: how many there are, of all.
  void Update(const std::vector<v1::Worker>& workers,
              const std::vector<v1::Job>& open,
              const std::map<JobState, int64_t>& by_state);
  // The loop's, too.  The last one of a job, once.
  void CountRecovery(const v1::Recovery& recovery);
  // The loop's, too.  counts: since the start.
  void CountGroups(const GroupCounts& counts);
  void CountCheckpoints(const CheckpointCounts& counts);

 private:
  void DeclareCheckpoints();
  void SetDrift(const v1::Job& job);
  void SetGroup(const v1::Job& job);
  void SetRecovery(const v1::Job& job);

  MetricsRegistry& registry_;
  std::set<JobId> running_;  // that have series
  GroupCounts counted_;      // so far
  CheckpointCounts counted_checkpoints_;
};

}  // namespace paceline
