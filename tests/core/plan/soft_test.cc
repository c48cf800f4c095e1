#include "core/plan/search/soft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/plan/search/policies.h"
#include "tests/core/plan/random_instances.h"

namespace paceline {
namespace {

int StagesFor(const PlanProblem& problem, uint64_t seed) {
  const uint64_t most = std::min(problem.layers.size(), problem.devices.size());
  return static_cast<int>(1 + seed % most);
}

// Every term of the loss: replicas or not, shares even or not, both ways or
// one, overlap or not, memory or not, endless or not.
TEST(Relaxation, GradientIsThatOfFiniteDifferences) {
  constexpr double kStep = 1e-5;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const CostTable tables(problem);
    const int stages = StagesFor(problem, seed);
    Relaxation relaxation(tables, stages);
    Softness soft;
    soft.cut_width = 0.5 + static_cast<double>(seed % 3);
    soft.membership = 0.3 + 0.2 * static_cast<double>(seed % 4);
    soft.sharpness = 2 + static_cast<int>(seed % 4);
    std::vector<double> logits = RandomLogits(relaxation, stages, seed);
    std::vector<double> gradient, unused;
    relaxation.Loss(logits, soft, gradient);

    for (size_t i = 0; i < logits.size(); ++i) {
      const double at = logits[i];
      logits[i] = at + kStep;
      const double above = relaxation.Loss(logits, soft, unused);
      logits[i] = at - kStep;
      const double below = relaxation.Loss(logits, soft, unused);
      logits[i] = at;
      const double slope = (above - below) / (2 * kStep);
      ASSERT_NEAR(gradient[i], slope, 1e-5 * (1e-2 + std::abs(slope)))
          << "seed " << seed << " logit " << i;
    }
  }
}

// The descent does the work, not what comes after it: no mending here.
TEST(Descend, RoundsToLessThanItsStartInTheMedian) {
  std::vector<double> ratios;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    PlanProblem problem = RandomProblem(seed);
    if (problem.layers.size() < 4 || problem.devices.size() < 3) continue;
    for (Device& device : problem.devices) device.memory_bytes = 0;
    const CostTable tables(problem);
    const int stages = 2 + static_cast<int>(seed % 2);
    Relaxation relaxation(tables, stages);
    std::vector<double> logits = RandomLogits(relaxation, stages, seed);
    WalkState state(tables);
    state.Reset(relaxation.Round(logits));
    const double start = state.Evaluate().step_seconds;

    Descend(tables, 64, relaxation, logits);

    state.Reset(relaxation.Round(logits));
    ratios.push_back(state.Evaluate().step_seconds / start);
  }
  ASSERT_GT(ratios.size(), 100u);
  std::sort(ratios.begin(), ratios.end());
  EXPECT_LT(ratios[ratios.size() / 2], 0.6);
  EXPECT_LT(ratios[ratios.size() * 9 / 10], 1.1);
}

}  // namespace
}  // namespace paceline
