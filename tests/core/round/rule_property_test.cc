// The rules against their definitions written plainly, on random parts, and
// relations that hold for any parts.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/round/rules/rule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/rule_inputs.h"

namespace paceline {
namespace {

// Not a multiple of any block or lane, and more than one block.
constexpr size_t kLength = 2 * 1024 + 387;

// Lower where a part points up: any pure function of its values will do.
class SumLoss : public TrustedLoss {
 public:
  absl::StatusOr<double> After(absl::Span<const float> direction,
                               double step) override {
    const double sum = std::accumulate(direction.begin(), direction.end(), 0.0);
    return 3.0 - step * sum;
  }
};

RuleSpec SpecOf(const std::string& name, int64_t k) {
  return {.name = name, .k = k, .selected = 2, .gamma = 0.1, .rho = 1e-6};
}

Outcome RunWithLoss(const RuleSpec& spec, const Members& members) {
  SumLoss loss;
  return RunRule(spec, members, &loss);
}

bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
        return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
      });
}

std::vector<float> SortedMeans(const Members& members, size_t at) {
  std::vector<float> means;
  for (size_t i = 0; i < members.sums.size(); ++i) {
    means.push_back(members.mean(i, at));
  }
  std::sort(means.begin(), means.end());
  return means;
}

double PlainDistance(const Members& members, size_t a,
                     const std::vector<float>& b) {
  double sum = 0;
  for (size_t at = 0; at < b.size(); ++at) {
    const double d = static_cast<double>(members.mean(a, at)) - b[at];
    sum += d * d;
  }
  return sum;
}

std::vector<float> MeansOf(const Members& members, size_t member) {
  std::vector<float> means;
  for (size_t at = 0; at < members.sums[member].size(); ++at) {
    means.push_back(members.mean(member, at));
  }
  return means;
}

// Everything below for 1 to 20 members: unrolled networks and the loop.
class RulesOf : public ::testing::TestWithParam<size_t> {
 protected:
  size_t members() const { return GetParam(); }
};

// Fewer leave krum without a neighbour, and no liar can be outvoted.
class RulesOfThreeOrMore : public RulesOf {};

TEST_P(RulesOf, MeanIsThatOfAllSamplesInOneProcess) {
  const Members parts = RandomMembers(members(), kLength, 1);

  const Outcome outcome = RunWithLoss(SpecOf("mean", 0), parts);

  for (size_t at = 0; at < kLength; ++at) {
    double sum = 0;
    for (const auto& part : parts.sums) sum += part[at];
    ASSERT_NEAR(outcome.result[at], sum, 1e-5 * 16 * 8 * members());
  }
  EXPECT_EQ(
      outcome.verdict.divisor,
      std::accumulate(parts.samples.begin(), parts.samples.end(), int64_t{0}));
}

TEST_P(RulesOf, MedianIsThatOfSortedMeans) {
  const Members parts = RandomMembers(members(), kLength, 2);

  const Outcome outcome = RunWithLoss(SpecOf("median", 0), parts);

  for (size_t at = 0; at < kLength; ++at) {
    const std::vector<float> sorted = SortedMeans(parts, at);
    const double middle = (static_cast<double>(sorted[(members() - 1) / 2]) +
                           sorted[members() / 2]) /
                          2;
    ASSERT_EQ(outcome.result[at], static_cast<float>(middle)) << at;
  }
}

TEST_P(RulesOf, TrimmedMeanIsThatOfSortedMeansForEveryK) {
  const Members parts = RandomMembers(members(), 300, 3);
  for (size_t k = 0; 2 * k < members(); ++k) {
    const Outcome outcome =
        RunWithLoss(SpecOf("trimmed-mean", static_cast<int64_t>(k)), parts);

    for (size_t at = 0; at < 300; ++at) {
      const std::vector<float> sorted = SortedMeans(parts, at);
      double sum = 0;
      for (size_t i = k; i < members() - k; ++i) sum += sorted[i];
      const double mean = sum / static_cast<double>(members() - 2 * k);
      ASSERT_FLOAT_EQ(outcome.result[at], static_cast<float>(mean)) << k;
    }
  }
}

TEST_P(RulesOfThreeOrMore, KrumScoresAreSumsOfTheLeastDistances) {
  const Members parts = RandomMembers(members(), kLength, 4);
  for (size_t k = 0; k + 3 <= members(); k += 2) {
    RuleSpec spec = SpecOf("krum", static_cast<int64_t>(k));
    spec.selected = 1;
    const Outcome outcome = RunWithLoss(spec, parts);

    size_t best = 0;
    std::vector<double> scores;
    for (size_t i = 0; i < members(); ++i) {
      std::vector<double> distances;
      for (size_t j = 0; j < members(); ++j) {
        if (j == i) continue;
        distances.push_back(PlainDistance(parts, i, MeansOf(parts, j)));
      }
      std::sort(distances.begin(), distances.end());
      distances.resize(members() - k - 2);
      scores.push_back(
          std::accumulate(distances.begin(), distances.end(), 0.0));
      if (scores[i] < scores[best]) best = i;
      ASSERT_NEAR(outcome.verdict.scores[i], scores[i], 1e-5 * scores[i]);
    }
    ASSERT_THAT(outcome.verdict.used, ::testing::ElementsAre(best));
    ASSERT_TRUE(SameBytes(outcome.result, MeansOf(parts, best)));
  }
}

TEST_P(RulesOf, SuspicionWeighsByDistanceToTheMedian) {
  const Members parts = RandomMembers(members(), kLength, 5);
  const std::vector<float> median =
      RunWithLoss(SpecOf("median", 0), parts).result;
  std::vector<double> distances;
  for (size_t i = 0; i < members(); ++i) {
    distances.push_back(std::sqrt(PlainDistance(parts, i, median)));
  }
  std::vector<double> sorted = distances;
  std::sort(sorted.begin(), sorted.end());
  const double middle =
      (sorted[(members() - 1) / 2] + sorted[members() / 2]) / 2;
  const size_t k = members() / 3;

  const Outcome outcome =
      RunWithLoss(SpecOf("suspicion", static_cast<int64_t>(k)), parts);

  double weights = 0;
  std::vector<double> expected(kLength, 0);
  for (size_t i = 0; i < members(); ++i) {
    if (distances[i] > sorted[members() - 1 - k]) continue;
    const double s = middle > 0 ? distances[i] / middle : 0;
    weights += 1 / (1 + s);
    for (size_t at = 0; at < kLength; ++at) {
      expected[at] += parts.mean(i, at) / (1 + s);
    }
  }
  EXPECT_EQ(outcome.verdict.used.size(), members() - k);
  for (size_t at = 0; at < kLength; ++at) {
    ASSERT_NEAR(outcome.result[at], expected[at] / weights, 1e-4) << at;
  }
}

TEST_P(RulesOf, ZenoAveragesTheHighestScores) {
  const Members parts = RandomMembers(members(), kLength, 6);
  const size_t k = members() / 2;
  std::vector<double> scores;
  for (size_t i = 0; i < members(); ++i) {
    const std::vector<float> means = MeansOf(parts, i);
    const double sum = std::accumulate(means.begin(), means.end(), 0.0);
    const std::vector<float> zeros(kLength, 0);
    scores.push_back(0.1 * sum - 1e-6 * PlainDistance(parts, i, zeros));
  }
  std::vector<double> sorted = scores;
  std::sort(sorted.begin(), sorted.end());

  const Outcome outcome =
      RunWithLoss(SpecOf("zeno", static_cast<int64_t>(k)), parts);

  std::vector<int> used;
  for (size_t i = 0; i < members(); ++i) {
    EXPECT_NEAR(outcome.verdict.scores[i], scores[i], 1e-3);
    if (scores[i] >= sorted[k]) used.push_back(static_cast<int>(i));
  }
  EXPECT_EQ(outcome.verdict.used, used);
}

TEST_P(RulesOf, AnyRangesInAnyOrderGiveTheSameBytes) {
  const Members parts = RandomMembers(members(), kLength, 7);
  SplitMix64 random(members());
  for (const std::string& name : RuleNames()) {
    const int64_t k = name == "mean" || members() < 4 ? 0 : 1;
    if (name == "krum" && members() < 3) continue;
    const RuleSpec spec = SpecOf(name, k);
    SumLoss loss;
    const auto rule = MakeRule(spec, &loss);
    ASSERT_TRUE(rule.ok()) << rule.status();
    const auto verdict = (*rule)->Decide(parts.parts());
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    const std::vector<float> whole = RunWithLoss(spec, parts).result;

    for (const size_t most : {size_t{1}, size_t{100}, size_t{1500}}) {
      std::vector<float> chunked(kLength);
      size_t end = kLength;
      while (end > 0) {
        const size_t size = std::min(end, 1 + random.Below(most));
        (*rule)->Combine(parts.parts(), *verdict, end - size, end,
                         absl::MakeSpan(chunked).subspan(end - size, size));
        end -= size;
      }
      ASSERT_TRUE(SameBytes(chunked, whole)) << name << " " << most;
    }
  }
}

TEST_P(RulesOf, SortedRulesDoNotCareWhoSentAValue) {
  Members parts = RandomMembers(members(), kLength, 8);
  // Equal numbers of unlike bytes among them.
  for (size_t i = 0; i < members(); ++i) parts.sums[i][5] = i % 2 ? 0.f : -0.f;
  const auto k = static_cast<int64_t>((members() - 1) / 2);
  for (const std::string name : {"median", "trimmed-mean"}) {
    const std::vector<float> before =
        RunWithLoss(SpecOf(name, k), parts).result;
    Members turned = parts;
    std::rotate(turned.sums.begin(), turned.sums.begin() + members() / 2,
                turned.sums.end());
    std::rotate(turned.samples.begin(), turned.samples.begin() + members() / 2,
                turned.samples.end());

    EXPECT_TRUE(SameBytes(RunWithLoss(SpecOf(name, k), turned).result, before))
        << name;
  }
}

TEST_P(RulesOfThreeOrMore, LiarsWithinTheAssumptionCannotLeaveTheHonestRange) {
  const size_t liars = (members() - 1) / 2;
  const float huge = std::numeric_limits<float>::max();
  for (int attack = 0; attack < 3; ++attack) {
    Members parts = RandomMembers(members(), kLength, 9);
    SplitMix64 random(10);
    for (size_t i = 0; i < liars; ++i) {
      // Alternating places, so that liars stand among the honest.
      for (float& value : parts.sums[2 * i]) {
        if (attack == 0) value *= -10;
        if (attack == 1) value = huge;
        if (attack == 2) value = random.Below(2) == 0 ? huge : -huge;
      }
    }
    for (const std::string name : {"median", "trimmed-mean"}) {
      const std::vector<float> result =
          RunWithLoss(SpecOf(name, static_cast<int64_t>(liars)), parts).result;
      for (size_t at = 0; at < kLength; ++at) {
        float least = huge;
        float most = -huge;
        for (size_t i = 0; i < members(); ++i) {
          if (i % 2 == 0 && i / 2 < liars) continue;
          least = std::min(least, parts.mean(i, at));
          most = std::max(most, parts.mean(i, at));
        }
        ASSERT_GE(result[at], least) << name << " attack " << attack;
        ASSERT_LE(result[at], most) << name << " attack " << attack;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Members, RulesOf,
                         ::testing::Values(1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17,
                                           20));
INSTANTIATE_TEST_SUITE_P(Members, RulesOfThreeOrMore,
                         ::testing::Values(3, 4, 5, 7, 8, 9, 13, 16, 17, 20));

// Honest gradients scatter around 1; liars send the opposite tenfold.
Members Attacked(size_t honest, size_t liars) {
  SplitMix64 random(11);
  Members parts;
  for (size_t i = 0; i < honest + liars; ++i) {
    const float factor = i < honest ? 1 : -10;
    std::vector<float> sum;
    for (size_t at = 0; at < kLength; ++at) {
      sum.push_back(4 * factor * (1 + (random.Unit() - 0.5f) / 2));
    }
    parts.Add(std::move(sum), 4);
  }
  return parts;
}

TEST(RulesUnderAttack, AllButMeanHoldAgainstTwoSignFlippersOfNineAndDropThem) {
  const Members parts = Attacked(7, 2);
  for (const std::string& name : RuleNames()) {
    SCOPED_TRACE(name);
    // SumLoss asks for parts that point up: the honest ones.
    const Outcome outcome = RunWithLoss(SpecOf(name, 2), parts);

    double mean = 0;
    for (const float value : outcome.result) {
      mean += value / static_cast<double>(outcome.verdict.divisor);
    }
    mean /= kLength;
    if (name == "mean") {
      EXPECT_LT(mean, -1);
    } else {
      EXPECT_NEAR(mean, 1, 0.2);
    }
    if (name == "suspicion" || name == "zeno") {
      EXPECT_THAT(outcome.verdict.used,
                  ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
    }
  }
}

// FNV-1a over the bytes of a result.
uint64_t HashOf(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((bits >> shift) & 0xff)) * 0x100000001b3u;
    }
  }
  return hash;
}

TEST(RulesGolden, GiveTheseBytesOnEveryCpu) {
  const Members parts = RandomMembers(9, kLength, 12);
  std::vector<uint64_t> hashes;
  for (const std::string& name : RuleNames()) {
    hashes.push_back(HashOf(RunWithLoss(SpecOf(name, 2), parts).result));
  }

  EXPECT_THAT(hashes, ::testing::ElementsAre(
                          6297179335432456209u, 8425465341194527925u,
                          14659984423577498350u, 16393034907033369298u,
                          3563857113310604218u, 8207853555877282245u));
}

}  // namespace
}  // namespace paceline
