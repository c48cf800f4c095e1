#include "worker/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <vector>

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

TEST(SpoilGradient, TurnsSignsDrawsNoiseAndBreaksNumbers) {
  std::vector<float> gradient = {1, -2, 3};
  StepFaults flip;
  flip.sign_flip = 10;
  SpoilGradient(flip, 4, 1, absl::MakeSpan(gradient));
  EXPECT_THAT(gradient, testing::ElementsAre(-10, 20, -30));

  std::vector<float> noise(10'000);
  StepFaults gaussian;
  gaussian.gaussian = 2;
  SpoilGradient(gaussian, 3, 1, absl::MakeSpan(noise));
  double squares = 0;
  for (const float value : noise) squares += double{value} * value;
  EXPECT_NEAR(std::sqrt(squares / 10'000), 6, 0.2);

  StepFaults nan;
  nan.nan = true;
  SpoilGradient(nan, 4, 1, absl::MakeSpan(gradient));
  EXPECT_TRUE(std::isnan(gradient[0]));
  EXPECT_TRUE(std::isinf(gradient[2]));
}

TEST(FlipLabels, CountsClassesFromTheOtherEnd) {
  Tensor labels = Tensor::Allocate(DType::kI64, {4});
  const int64_t values[] = {0, 9, 3, -100};
  std::copy(values, values + 4, labels.As<int64_t>().begin());

  Tensor flipped = FlipLabels(labels, 10);

  EXPECT_THAT(flipped.As<int64_t>(), testing::ElementsAre(9, 0, 6, -100));
  EXPECT_EQ(labels.As<int64_t>()[0], 0);
}

TEST(ProcessFaults, AHangEndsByItself) {
  ProcessFaults faults;
  const auto before = std::chrono::steady_clock::now();

  faults.Hang(absl::Milliseconds(50));

  EXPECT_GE(std::chrono::steady_clock::now() - before,
            std::chrono::milliseconds(40));
}

}  // namespace
}  // namespace paceline
