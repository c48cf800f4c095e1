// The coordinator's /metrics shows jobs and round groups.
#include "coordinator/watch/metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/brain/group_mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsOfAMesh : public ::testing::Test {
 protected:
  std::string Read(Mesh& mesh) {
    const Brain& brain = mesh.brain();
    metrics_.Update(mesh.ViewWorkers(), brain.ViewRunningJobs(),
                    brain.CountJobs());
    metrics_.CountLosses(brain.losses());
    metrics_.CountGroups(brain.group_counts());
    return registry_.Text();
  }

  MetricsRegistry registry_;
  CoordinatorMetrics metrics_{registry_, "1.2.3"};
};

TEST_F(MetricsOfAMesh, HaveSeriesOfAJobUntilItEnds) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Report(a, mesh.Submit(SpecOf(1)), kRunning, 5);
  EXPECT_THAT(Read(mesh),
              Says("paceline_coordinator_job_step{job=\"1\"} 5",
                   "coordinator_job_floor_step{job=\"1\"} 0",
                   "coordinator_job_snapshot_age_steps{job=\"1\"} 5",
                   "coordinator_job_goodput_ratio{job=\"1\"} 1",
                   "paceline_coordinator_workers{state=\"busy\"} 1"));

  ASSERT_TRUE(mesh.Stop().ok());

  EXPECT_THAT(
      Read(mesh),
      AllOf(Not(HasSubstr("job=\"1\"")),
            HasSubstr("paceline_coordinator_jobs{state=\"stopped\"} 1")));
}

TEST_F(MetricsOfAMesh, CountRecoveriesByPhase) {
  v1::Recovery recovery;
  recovery.set_again(6);
  recovery.mutable_seconds()->set_leave(0.5);

  metrics_.CountRecovery(recovery);

  EXPECT_THAT(registry_.Text(),
              Says("coordinator_recoveries_total 1",
                   "coordinator_steps_replayed_total 6",
                   "recovery_seconds_sum{phase=\"leave\"} 0.5",
                   "recovery_seconds_count{phase=\"fetch\"} 1"));
}

TEST_F(MetricsOfAMesh, SayWhoIsThereAndWhetherTheGroupIsPaused) {
  JobSpec spec = GroupSpec();
  spec.aggregation.min_parts = 2;
  GroupMesh mesh = Training(2, spec);
  EXPECT_THAT(Read(mesh),
              Says("job_phase{job=\"1\"} 2\n",
                   "worker_state{worker=\"w2\"} 2\n", "workers_lost_total 0\n",
                   "job_group_members{job=\"1\",state=\"member\"} 2\n"));

  mesh.Break("w2");
  mesh.Pass(600);

  EXPECT_THAT(Read(mesh),
              Says("job_phase{job=\"1\"} 5\n",
                   "worker_state{worker=\"w2\"} 4\n", "workers_lost_total 1\n",
                   "job_group_members{job=\"1\",state=\"member\"} 1\n",
                   "group_leavers_total{reason=\"lost\"} 1\n"));
  ASSERT_TRUE(mesh.Stop().ok());
  EXPECT_THAT(Read(mesh), Not(HasSubstr("job_phase{")));
}

TEST_F(MetricsOfAMesh, DropTheStateOfAWorkerThatIsForgotten) {
  v1::Worker worker;
  worker.mutable_registration()->set_name("w1");
  worker.set_state(v1::WORKER_STATE_IDLE);
  metrics_.Update({worker}, {}, {});
  EXPECT_THAT(registry_.Text(), HasSubstr("worker_state{worker=\"w1\"} 1\n"));

  metrics_.Update({}, {}, {});

  EXPECT_THAT(registry_.Text(), Not(HasSubstr("worker_state{")));
}

TEST_F(MetricsOfAMesh, CountMicroBatchesOfReplicasUntilAPlanIsWithoutThem) {
  v1::Job job;
  job.set_id(1);
  job.set_plan_version(1);
  for (const auto& [id, stage, seconds] :
       {std::tuple(1, 0, 0.25), std::tuple(2, 0, 0.5),
        std::tuple(3, 1, 0.75)}) {
    v1::JobWorker& worker = *job.add_workers();
    worker.set_id(id);
    worker.set_name(absl::StrCat("w", id));
    v1::StageDrift& drift = *job.add_drift();
    drift.set_worker_id(id);
    drift.set_stage(stage);
    drift.set_measured_seconds(seconds);
    job.add_stage_times()->set_micro_batches(10 * id);
  }
  constexpr char kSecond[] =
      "job_replica_micro_batches{job=\"1\",stage=\"0\",worker=\"w2\"} 20\n";
  metrics_.Update({}, {job}, {});
  EXPECT_THAT(
      registry_.Text(),
      Says(kSecond, "stage_measured_seconds{job=\"1\",stage=\"0\"} 0.5\n",
           "stage_measured_seconds{job=\"1\",stage=\"1\"} 0.75\n"));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("worker=\"w3\"")));

  job.set_plan_version(2);
  job.mutable_drift()->DeleteSubrange(1, 1);
  metrics_.Update({}, {job}, {});

  EXPECT_THAT(registry_.Text(), Not(HasSubstr("replica_micro_batches{")));
}

TEST_F(MetricsOfAMesh, SayWhatTheHostHasLeft) {
  metrics_.SetCertificateExpiry(absl::FromUnixSeconds(1000));
  metrics_.SetDiskFree("state", "/");
  metrics_.SetDiskFree("checkpoints", "/no such folder");

  EXPECT_THAT(registry_.Text(),
              AllOf(HasSubstr("certificate_expiry_timestamp_seconds 1000\n"),
                    HasSubstr("disk_free_bytes{folder=\"state\"} "),
                    Not(HasSubstr("folder=\"checkpoints\""))));
}

TEST_F(MetricsOfAMesh, CountWhoWasEvictedForAnotherState) {
  GroupMesh mesh = Training(3);
  mesh.worker("w1").report.mismatch_step = 17;
  mesh.worker("w1").report.mismatch = {
      {mesh.Id("w1"), 7}, {mesh.Id("w2"), 8}, {mesh.Id("w3"), 7}};

  mesh.Say("w1");

  EXPECT_THAT(Read(mesh),
              HasSubstr("group_leavers_total{reason=\"mismatch\"} 1\n"));
}

}  // namespace
}  // namespace paceline
