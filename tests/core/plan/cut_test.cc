#include "core/plan/cut.h"

#include <algorithm>
#include <vector>

#include "core/plan/cost.h"
#include "gtest/gtest.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

TEST(CutEqually, CoversTheChainAsEvenlyAsCanBeTheLongerStagesFirst) {
  for (int layers = 1; layers <= 20; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const auto ranges = Value(CutEqually(layers, stages));

      ASSERT_EQ(ranges.size(), stages);
      int next = 0;
      int length = 0;
      for (const auto& [first, last] : ranges) {
        EXPECT_EQ(first, next);
        EXPECT_GE(last - first, layers / stages);
        EXPECT_LE(last - first, (layers + stages - 1) / stages);
        EXPECT_TRUE(first == 0 || last - first <= length);
        length = last - first;
        next = last;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

// Every cut of some small chains tried.
TEST(CutForDealing, IsAsGoodAsAnyCut) {
  const PlanProblem problem = ProblemOf({3, 1, 4, 1, 5, 9, 2, 6}, {1, 1});
  const auto longest = [&](const std::vector<int>& cuts) {
    double most = 0;
    for (size_t s = 0; s + 1 < cuts.size(); ++s) {
      most = std::max(most, LayerSeconds(problem, {cuts[s], cuts[s + 1]},
                                         static_cast<int>(s % 2)));
    }
    return most;
  };
  double best = 1e9;
  for (int a = 1; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) {
      for (int c = b + 1; c < 8; ++c) {
        best = std::min(best, longest({0, a, b, c, 8}));
      }
    }
  }

  std::vector<int> cuts = {0};
  for (const LayerRange& range : CutForDealing(problem, 4)) {
    EXPECT_EQ(range.first, cuts.back());
    cuts.push_back(range.last);
  }
  EXPECT_EQ(longest(cuts), best);
}

}  // namespace
}  // namespace paceline
