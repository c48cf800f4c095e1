#include "core/predict/curve.h"
#include "core/predict/layer_predictor.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr LayerTerms kLight = {1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9};

TEST(WeightedMedian, IsTheLeastValueWithHalfTheWeight) {
  EXPECT_EQ(WeightedMedian({{3, 1}, {1, 1}, {2, 1}}), 2);
  EXPECT_EQ(WeightedMedian({{3, 5}, {1, 1}, {2, 1}}), 3);
  EXPECT_EQ(WeightedMedian({}), 0);
}

TEST(Quantile, LiesBetweenTheRanks) {
  EXPECT_EQ(Quantile({1, 2, 4}, 0), 1);
  EXPECT_EQ(Quantile({1, 2, 4}, 1), 4);
  EXPECT_EQ(Quantile({1, 2, 4}, 0.75), 3);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
}

TEST(Ridge, FindsTheCoefficientsThatMadeTheSamples) {
  std::vector<RidgeSample> samples;
  for (int i = 0; i < 20; ++i) {
    const double a = i % 5, b = i / 5;
    samples.push_back({{1, a, b, 0, 0, 0}, 3 + 2 * a - b});
  }

  const Ridge ridge = Ridge::Fit(samples, kLight);

  EXPECT_NEAR(ridge.At({1, 10, 20, 0, 0, 0}), 3, 1e-5);
}

TEST(Ridge, PutsWhatAllSamplesShareIntoTheConstant) {
  const std::vector<RidgeSample> samples(5, {{1, 20, 20, 0, 0, 0}, 2});

  const Ridge ridge = Ridge::Fit(samples, {1e-9, 1, 1, 1, 1, 1});

  EXPECT_NEAR(ridge.At({1, 20, 20, 0, 0, 0}), 2, 1e-6);
  EXPECT_NEAR(ridge.At({1, 0, 0, 0, 0, 0}), 2, 1e-6);
}

TEST(Ridge, SaysNothingWithoutSamples) {
  EXPECT_EQ(Ridge::Fit({}, kLight).At({1, 2, 3, 4, 5, 6}), 0);
}

TEST(Ridge, HasMoreLeverageFarFromItsSamples) {
  std::vector<RidgeSample> samples;
  for (int i = 0; i < 10; ++i) {
    samples.push_back({{1, static_cast<double>(i), 0, 0, 0, 0}, 1.0 * i});
  }

  const Ridge ridge = Ridge::Fit(samples, {1, 1, 1, 1, 1, 1});

  EXPECT_LT(ridge.Leverage({1, 5, 0, 0, 0, 0}),
            ridge.Leverage({1, 50, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace paceline
