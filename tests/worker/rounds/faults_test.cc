#include "worker/rounds/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <vector>

namespace paceline {
namespace {

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
