// Verdicts on a group's job do not depend on how many members it has.
#include <string>
#include <vector>

#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/group_mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

void Evaluate(GroupMesh& mesh, const std::string& name,
              const v1::EvaluationRecord& part) {
  v1::Heartbeat heartbeat = mesh.Beat(name);
  *heartbeat.add_evaluations() = part;
  mesh.Send(name, heartbeat);
}

// It has begun; `steps` of its data are known.
void FailWith(GroupMesh& mesh, const std::string& name, int64_t steps,
              const std::string& why) {
  v1::Heartbeat failed = mesh.Beat(name);
  failed.mutable_run()->set_phase(kFailed);
  failed.mutable_run()->set_steps(steps);
  SetError(absl::InvalidArgumentError(why), *failed.mutable_run());
  mesh.Send(name, failed);
}

// With fewer micro-batches than members some have nothing to evaluate.
TEST(GroupVerdict, AnEvaluationIsWholeWithMembersThatHadNothingOfIt) {
  for (const char* const first : {"w1", "w2"}) {
    GroupMesh mesh = Training(3);
    const std::string second = first == std::string("w1") ? "w2" : "w1";

    Evaluate(mesh, first, PartOf(10));
    Evaluate(mesh, "w3", PartOf(10, 1.5, 0.25, 4));
    EXPECT_FALSE(mesh.Job().has_accuracy()) << "one is missing yet";
    Evaluate(mesh, second, PartOf(10));

    EXPECT_THAT(mesh.Story(), Tells("evaluated: accuracy 0.2500, loss 1.5000"));
    EXPECT_DOUBLE_EQ(mesh.Job().accuracy(), 0.25);
  }
}

TEST(GroupVerdict, AFaultOfTheDataFailsTheJobHoweverManyMembersThereAre) {
  for (const int members : {1, 3}) {
    GroupMesh mesh = Training(members);

    FailWith(mesh, "w1", 60, "label 12 is outside of the model's 10 classes");

    EXPECT_EQ(mesh.State(), JobState::kFailed) << members;
    EXPECT_THAT(mesh.Why(),
                Says("worker w1 failed", "label 12", "put that right first"));
  }
}

// A file of its own is another matter.
TEST(GroupVerdict, AMemberThatCannotBeginLeavesTheOthersAlone) {
  GroupMesh mesh = Training(3);

  FailWith(mesh, "w1", 0, "a damaged file");

  EXPECT_EQ(mesh.State(), JobState::kRunning);
  EXPECT_EQ(mesh.Members("w2"), "w2 w3");
}

}  // namespace
}  // namespace paceline
