// Verdicts on a group's job do not depend on how many members it has.
#include <string>
#include <vector>

#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/brain/group_mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

void Evaluate(GroupMesh& mesh, const std::string& name,
              const std::vector<v1::EvaluationRecord>& parts) {
  v1::Heartbeat heartbeat = mesh.Beat(name);
  heartbeat.mutable_evaluations()->Assign(parts.begin(), parts.end());
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

TEST(GroupVerdict, PartialEvaluationsAreMergedByTheirSamples) {
  GroupMesh mesh = Training(2);

  Evaluate(mesh, "w1", {PartOf(10, 2.0, 0.5, 100)});
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("evaluated"))));
  Evaluate(mesh, "w2", {PartOf(10, 1.0, 0.9, 300)});
  Evaluate(mesh, "w2", {PartOf(10, 1.0, 0.9, 300)});  // was not acknowledged

  EXPECT_THAT(mesh.Story(),
              Tells("accuracy 0.8000, loss 1.2500 after step 10", "400 s"));
  EXPECT_DOUBLE_EQ(mesh.Job().accuracy(), 0.8);
}

TEST(GroupVerdict, AnEvaluationOfAPartOfTheTestSetIsToldApart) {
  GroupMesh mesh = Training(2);

  Evaluate(mesh, "w1", {PartOf(10, 2.0, 0.5, 5000)});
  mesh.Break("w2");
  mesh.Pass(600);
  ASSERT_EQ(mesh.Members("w1"), "w1");
  EXPECT_FALSE(mesh.Job().has_accuracy());
  Evaluate(mesh, "w1",
           {PartOf(20, 1.0, 0.8, 10000)});  // alone it has the whole set
  Evaluate(mesh, "w1",
           {PartOf(30, 1.0, 0.9, 7000)});  // lost before the first part
  Evaluate(mesh, "w1", {PartOf(40, 1.0, 0.7, 10000)});

  const std::vector<std::string> story = mesh.Story();
  EXPECT_THAT(story,
              Tells("incomplete: accuracy 0.5000, loss 2.0000", "from w2"));
  EXPECT_THAT(story, Tells("evaluated: accuracy 0.8000"));
  EXPECT_THAT(story, Tells("incomplete: accuracy 0.9000"));
  EXPECT_DOUBLE_EQ(mesh.Job().accuracy(), 0.7);
}

// The next evaluation ended the one before it, though the other members' parts
// were on their way.
TEST(GroupVerdict, AnEvaluationWaitsForMembersThatHaveNotSentTheNextOne) {
  GroupMesh mesh = Training(2);

  Evaluate(mesh, "w1", {PartOf(10, 2.0, 0.5, 100), PartOf(11, 1.0, 0.6, 100)});
  Evaluate(mesh, "w2", {PartOf(10, 2.0, 0.7, 100), PartOf(11, 1.0, 0.8, 100)});

  const std::vector<std::string> story = mesh.Story();
  EXPECT_THAT(story, Tells("evaluated: accuracy 0.6000"));
  EXPECT_THAT(story, Tells("evaluated: accuracy 0.7000"));
  EXPECT_THAT(story, Each(Not(HasSubstr("incomplete"))));
}

// With fewer micro-batches than members some have nothing to evaluate.
TEST(GroupVerdict, AnEvaluationIsWholeWithMembersThatHadNothingOfIt) {
  for (const char* const first : {"w1", "w2"}) {
    GroupMesh mesh = Training(3);
    const std::string second = first == std::string("w1") ? "w2" : "w1";

    Evaluate(mesh, first, {PartOf(10)});
    Evaluate(mesh, "w3", {PartOf(10, 1.5, 0.25, 4)});
    EXPECT_FALSE(mesh.Job().has_accuracy()) << "one is missing yet";
    Evaluate(mesh, second, {PartOf(10)});

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
