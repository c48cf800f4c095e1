#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/control/synthetic_job.h"
#include "worker/data/synthetic.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

std::vector<float> Mixed(MixValues mix, size_t count) {
  SplitMix64 pattern(1), noise(2);
  std::vector<float> values(count);
  mix(pattern, noise, absl::MakeSpan(values));
  // The next values must go on where these ended.
  values.push_back(static_cast<float>(pattern.Next() >> 40));
  values.push_back(static_cast<float>(noise.Next() >> 40));
  return values;
}

TEST(SyntheticValues, AreTheSameBytesWithAllInstructions) {
  // Up to several runs, and every rest of a draw.
  for (const size_t count : {1u, 2u, 3u, 4u, 5u, 1023u, 1024u, 3001u}) {
    const std::vector<float> plain = Mixed(WaysToMixValues().front(), count);
    for (const MixValues mix : WaysToMixValues()) {
      const std::vector<float> values = Mixed(mix, count);
      EXPECT_EQ(std::memcmp(values.data(), plain.data(),
                            plain.size() * sizeof(float)),
                0)
          << count;
    }
  }
}

// Runs of the same seed shall learn from the same samples on every machine and
// after every change here.  The numbers: two of 16 bits added by hand.
TEST(SyntheticValues, StayWhatTheyAre) {
  std::vector<float> values = Mixed(WaysToMixValues().front(), 5);
  values.resize(5);
  for (float& value : values) value *= 65536;
  EXPECT_THAT(values,
              ElementsAre(69712.f, -53605.f, 37302.f, -83604.f, -2288.f));
}

// One sample of the synthetic set.
struct Sample {
  std::vector<float> values;
  int64_t label = -1;
};

Sample Draw(const SyntheticSet& set, BatchPhase split, int32_t index) {
  const SampleFormat& format = set.format();
  Tensor input = Tensor::Allocate(DType::kF32, format.shape);
  Tensor label = Tensor::Allocate(DType::kI64, {1});
  EXPECT_TRUE(set.Load({split, 0, {index}}, input, label).ok());
  const auto values = input.As<float>();
  return {{values.begin(), values.end()}, label.As<int64_t>()[0]};
}

TEST(SyntheticImages, DrawsASampleFromItsNumberAlone) {
  const SyntheticSet set(SyntheticJob(0).data, 7);
  const SyntheticSet other_seed(SyntheticJob(0).data, 8);
  const Sample sample = Draw(set, BatchPhase::kTrain, 3);

  EXPECT_EQ(Draw(set, BatchPhase::kTrain, 3).values, sample.values);
  EXPECT_NE(Draw(set, BatchPhase::kTrain, 4).values, sample.values);
  EXPECT_NE(Draw(set, BatchPhase::kEvaluate, 3).values, sample.values);
  EXPECT_NE(Draw(other_seed, BatchPhase::kTrain, 3).values, sample.values);
}

TEST(SyntheticImages, CanBeLearned) {
  JobSpec spec = SyntheticJob(0);
  spec.data.shape = {1, 10, 10};
  const SyntheticSet set(spec.data, 7);
  constexpr int kValues = 100;
  // The mean of every class over the training split ...
  std::map<int64_t, std::vector<double>> means;
  for (int32_t i = 0; i < 50; ++i) {
    const Sample sample = Draw(set, BatchPhase::kTrain, i);
    ASSERT_GE(sample.label, 0);
    ASSERT_LT(sample.label, 4);
    std::vector<double>& mean = means[sample.label];
    mean.resize(kValues + 1);
    for (int j = 0; j < kValues; ++j) mean[j] += sample.values[j];
    ++mean[kValues];
  }
  ASSERT_EQ(means.size(), 4u) << "every class occurs";

  // ... is the nearest one to every sample of the test split.
  for (int32_t i = 0; i < 17; ++i) {
    const Sample sample = Draw(set, BatchPhase::kEvaluate, i);
    int64_t nearest = -1;
    double least = 1e300;
    for (const auto& [of, mean] : means) {
      double distance = 0;
      for (int j = 0; j < kValues; ++j) {
        const double d = sample.values[j] - mean[j] / mean[kValues];
        distance += d * d;
      }
      if (distance < least) {
        least = distance;
        nearest = of;
      }
    }
    EXPECT_EQ(nearest, sample.label) << i;
  }
}

}  // namespace
}  // namespace paceline
