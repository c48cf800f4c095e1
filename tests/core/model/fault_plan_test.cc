#include "core/model/fault_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FaultPlan, TellsWhatAWorkerDoesWrongInAStep) {
  const FaultPlan plan({{"w1", 3, "sign-flip", 2, 1, 10},
                        {"w1", 4, "delay", 1, 0.5},
                        {"w2", 3, "nan"}},
                       "w1", true);

  EXPECT_EQ(plan.At(2), StepFaults());
  EXPECT_EQ(plan.At(3).sign_flip, 10);
  EXPECT_FALSE(plan.At(3).nan);
  EXPECT_EQ(plan.At(4).sign_flip, 10);
  EXPECT_EQ(plan.At(4).delay, absl::Milliseconds(500));
  EXPECT_EQ(plan.At(5), StepFaults());
}

TEST(FaultPlan, ZeroStepsLastToTheEnd) {
  const FaultPlan plan({{"w1", 3, "label-flip", 0}}, "w1", true);

  EXPECT_FALSE(plan.At(2).label_flip);
  EXPECT_TRUE(plan.At(1'000'000).label_flip);
}

TEST(FaultPlan, KnowsEveryKind) {
  for (const char* const kind :
       {"kill", "hang", "delay", "bit-flip", "sign-flip", "label-flip",
        "gaussian", "nan", "duplicate"}) {
    EXPECT_NE(FaultPlan({{"w1", 0, kind}}, "w1", true).At(0), StepFaults())
        << kind;
  }
}

TEST(FaultPlan, AProcessThatCameLaterIsNotKilledAgain) {
  const std::vector<FaultSpec> faults = {{"w1", 3, "kill", 0},
                                         {"w1", 3, "nan"}};

  EXPECT_TRUE(FaultPlan(faults, "w1", true).At(3).kill);
  EXPECT_FALSE(FaultPlan(faults, "w1", false).At(3).kill);
  EXPECT_TRUE(FaultPlan(faults, "w1", false).At(3).nan);
}

TEST(FaultPlan, NamesWhatChangesNothing) {
  JobSpec spec;
  spec.train.steps = 10;
  spec.faults = {{"w1", 9, "kill", 2},
                 {"w1", 10, "hang", 1, 2.5},
                 {"w2", 0, "nan", 0, 2.5, 3}};

  EXPECT_THAT(
      FaultNotes(spec),
      ElementsAre("faults[0].steps changes nothing: a worker is killed once",
                  "faults[1].step changes nothing: step 10 never comes, the "
                  "last of 10 is 9",
                  "faults[2].seconds changes nothing: it is for hang and "
                  "delay, not for nan",
                  "faults[2].scale changes nothing: it is for sign-flip and "
                  "gaussian, not for nan"));
}

TEST(FaultPlan, HasNoNotesOfWhatWorksNorOfAnEndThatIsNotKnown) {
  JobSpec spec;
  spec.train.steps = 0;  // epochs decide
  spec.faults = {{"w1", 900, "kill"},
                 {"w2", 1, "delay", 0, 0.2},
                 {"w3", 1, "gaussian", 5, 1, 7}};

  EXPECT_THAT(FaultNotes(spec), IsEmpty());
}

}  // namespace
}  // namespace paceline
