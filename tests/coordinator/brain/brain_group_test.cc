// These tests hold what the brain does with the members of a data-parallel job,
// besides the scripts of tests/golden/coordinator/groups.txt.
#include <string>

#include "coordinator/jobs/job_text.h"
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "gtest/gtest.h"
#include "tests/coordinator/brain/group_mesh.h"

namespace paceline {
namespace {

TEST(BrainGroup, EveryFreeWorkerGetsTheWholeModelAndTheFirstView) {
  GroupMesh mesh;
  mesh.AttachAll(3);
  mesh.Submit(GroupSpec());

  const RunOrder run = *mesh.Run("w2");
  EXPECT_EQ(mesh.Members("w2"), "w1 w2 w3");
  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
  EXPECT_EQ(run.group->view.id, (ViewId{1, 1}));
  EXPECT_EQ(run.group->uploader, mesh.Id("w1"));
  EXPECT_EQ(run.group->workers[2].address, "w3:7401");
  ASSERT_EQ(run.stages.size(), 1u);
  EXPECT_EQ(run.stages[0].worker, WorkerId{2});
  EXPECT_EQ(run.stages[0].layers.first, 0);
  EXPECT_EQ(mesh.Record().stages.size(), 3u);
  EXPECT_EQ(MembersOf(mesh.Job(), false), 3);
  EXPECT_EQ(run.group->view.members[0].share, 1);
  EXPECT_EQ(run.cpu_capability, "avx512");
  EXPECT_GT(mesh.Job().workers(1).predicted_memory_bytes(), 0);
}

TEST(BrainGroup, FaultsThatAreSpentStaySoUnderALaterCoordinator) {
  JobSpec spec = GroupSpec();
  spec.model = DefaultModel("vit");
  spec.data = DefaultDataSpec("synthetic");
  spec.faults = {{.worker = "w1", .step = 5, .kind = "nan"},
                 {.worker = "", .kind = kSkipStage, .block = 1}};
  GroupMesh before = Training(2, spec);
  EXPECT_EQ(before.Run("w1")->spec.faults.size(), 2u);
  before.Break("w1");
  before.Break("w2");
  before.Pass(600);
  ASSERT_EQ(before.Job().phase(), "paused");
  GroupMesh mesh = Later(before);
  mesh.Attach("w1", 201);
  mesh.Attach("w2", 202);
  mesh.Pass(50);

  ASSERT_TRUE(mesh.Run("w1").has_value()) << mesh.Why();
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  // A skipped block concerns the model, and is never spent.
  ASSERT_EQ(mesh.Run("w1")->spec.faults.size(), 1u);
  EXPECT_EQ(mesh.Run("w1")->spec.faults[0].kind, kSkipStage);
}

}  // namespace
}  // namespace paceline
