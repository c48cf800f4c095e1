#include "core/job/distribution.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/data/batch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kParts = 4;
constexpr int64_t kSamples = 4000;

TrainSpec Batches() {
  TrainSpec train;
  train.batch = 32;
  train.micro_batch = 8;
  train.seed = 3;
  return train;
}

// Ten labels, as often as each other.
std::vector<int32_t> Labels() {
  std::vector<int32_t> labels(kSamples);
  for (int64_t i = 0; i < kSamples; ++i) {
    labels[i] = static_cast<int32_t>(i % 10);
  }
  return labels;
}

SampleParts PartsBy(const std::string& text, bool rotates = false) {
  return SampleParts(FindDistribution(text).value(), Batches(), kParts, rotates,
                     Labels());
}

// [part][label]
std::vector<std::vector<int>> CountsOf(const SampleParts& parts) {
  std::vector<std::vector<int>> counts(kParts, std::vector<int>(10));
  const std::vector<int32_t> labels = Labels();
  for (int64_t i = 0; i < kSamples; ++i) {
    ++counts[parts.part_of()[i]][labels[i]];
  }
  return counts;
}

TEST(SampleParts, EveryMemberHasAsManySamplesAsPlaces) {
  for (const char* const text :
       {"by-label", "dirichlet(0.1)", "clustered", "balanced"}) {
    for (const std::vector<int>& counts : CountsOf(PartsBy(text))) {
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0),
                kSamples / kParts)
          << text;
    }
  }
}

TEST(SampleParts, ByLabelAMemberHasFewLabelsAndBalancedAllOfThem) {
  for (const std::vector<int>& counts : CountsOf(PartsBy("by-label"))) {
    EXPECT_LE(std::count_if(counts.begin(), counts.end(),
                            [](int count) { return count > 0; }),
              4);
  }
  for (const std::vector<int>& counts : CountsOf(PartsBy("balanced"))) {
    for (const int count : counts) EXPECT_NEAR(count, 100, 1);
  }
}

TEST(SampleParts, ClusteredTwoMembersShareHalfOfTheLabels) {
  const auto counts = CountsOf(PartsBy("clustered"));

  for (int label = 0; label < 10; ++label) {
    const int low = label < 5 ? 0 : 2;
    EXPECT_NEAR(counts[low][label], 200, 60);
    EXPECT_NEAR(counts[low + 1][label], 200, 60);
    EXPECT_EQ(counts[2 - low][label], 0);
  }
}

// The smaller alpha, the more unlike members are.
TEST(SampleParts, DirichletsAlphaSaysHowUnlikeMembersAre) {
  const auto spread = [](const char* text) {
    double sum = 0;
    for (const std::vector<int>& counts : CountsOf(PartsBy(text))) {
      for (const int count : counts) sum += (count - 100.0) * (count - 100.0);
    }
    return sum;
  };

  EXPECT_GT(spread("dirichlet(0.1)"), 2 * spread("dirichlet(1)"));
  EXPECT_GT(spread("dirichlet(1)"), 4 * spread("dirichlet(100)"));
}

TEST(SampleParts, AnEpochHasEverySampleOnceAtAPlaceOfItsMember) {
  const SampleParts parts = PartsBy("by-label");
  std::vector<int32_t> order = SampleOrder(3, 5, kSamples);

  parts.Arrange(5, absl::MakeSpan(order));

  for (int64_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(parts.part_of()[order[i]], i % 32 / 8);
  }
  EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(),
            size_t{kSamples});
}

TEST(SampleParts, RotatingAMemberHasTheNextOnesSamples) {
  const SampleParts parts = PartsBy("by-label", /*rotates=*/true);
  std::vector<int32_t> order = SampleOrder(3, 1, kSamples);

  parts.Arrange(1, absl::MakeSpan(order));

  for (int64_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(parts.part_of()[order[i]], (i % 32 / 8 + 1) % kParts);
  }
}

TEST(Distribution, SaysWhatItCannotBe) {
  for (const char* const text :
       {"", "even", "dirichlet", "dirichlet(0)", "dirichlet(-1)",
        "dirichlet(nan)", "dirichlet(0.1", "by-label "}) {
    EXPECT_THAT(std::string(FindDistribution(text).status().message()),
                HasSubstr("dirichlet(ALPHA)"))
        << text;
  }
}

TEST(Distribution, WantsLabelsAndAGroupOfKnownSize) {
  JobSpec spec;
  spec.data.name = "fashion-mnist";
  spec.data.distribution = "by-label";
  spec.aggregation.members = 4;
  EXPECT_THAT(WhyNoDistribution(spec), HasSubstr("aggregation.mode"));

  spec.aggregation = {};
  spec.aggregation.mode = "rolling";
  EXPECT_THAT(WhyNoDistribution(spec), HasSubstr("aggregation.members"));

  spec.aggregation.members = 4;
  EXPECT_THAT(WhyNoDistribution(spec), IsEmpty());

  spec.kind = kInferKind;
  EXPECT_THAT(WhyNoDistribution(spec), HasSubstr("group"));
  spec.kind = kTrainKind;

  spec.data.name = "text";
  EXPECT_THAT(WhyNoDistribution(spec), HasSubstr("labels"));
}

}  // namespace
}  // namespace paceline
