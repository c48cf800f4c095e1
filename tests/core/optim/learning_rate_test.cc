#include "core/model/job_spec.h"
#include "core/optim/optimizer.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

LearningRateSpec Spec(const char* schedule) {
  LearningRateSpec spec;
  spec.schedule = schedule;
  spec.base = 0.8;
  return spec;
}

TEST(LearningRate, ConstantStaysAtItsBase) {
  const LearningRateSpec spec = Spec("constant");

  EXPECT_DOUBLE_EQ(LearningRate(spec, 0, 100), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 99, 100), 0.8);
}

TEST(LearningRate, WarmsUpLinearlyAndReachesTheBaseInItsLastStep) {
  LearningRateSpec spec = Spec("constant");
  spec.warmup_steps = 4;

  EXPECT_DOUBLE_EQ(LearningRate(spec, 0, 100), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 100), 0.4);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 3, 100), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 4, 100), 0.8);
}

TEST(LearningRate, CosineFallsFromBaseToMinimum) {
  LearningRateSpec spec = Spec("cosine");
  spec.minimum = 0.2;

  EXPECT_DOUBLE_EQ(LearningRate(spec, 0, 100), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 50, 100), 0.5);
  EXPECT_LT(LearningRate(spec, 99, 100), 0.201);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 100, 100), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1000, 100), 0.2);
}

TEST(LearningRate, CosineCountsFromTheEndOfTheWarmUp) {
  LearningRateSpec spec = Spec("cosine");
  spec.warmup_steps = 20;

  EXPECT_DOUBLE_EQ(LearningRate(spec, 19, 120), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 20, 120), 0.8);
  EXPECT_NEAR(LearningRate(spec, 70, 120), 0.4, 1e-12);
}

TEST(LearningRate, SurvivesAWarmUpThatIsAsLongAsTheJob) {
  LearningRateSpec spec = Spec("cosine");
  spec.warmup_steps = 10;

  EXPECT_DOUBLE_EQ(LearningRate(spec, 9, 10), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 10, 10), 0.8);
}

TEST(LearningRate, StepDropsByGamma) {
  LearningRateSpec spec = Spec("step");
  spec.step_every = 10;
  spec.gamma = 0.5;
  spec.warmup_steps = 2;

  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 100), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 11, 100), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 12, 100), 0.4);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 32, 100), 0.1);
}

}  // namespace
}  // namespace paceline
