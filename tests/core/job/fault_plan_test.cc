#include "core/job/spec/job_spec.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

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

}  // namespace
}  // namespace paceline
