#include "core/plan/policies/soft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/plan/policies/soft_cuts.h"
#include "core/plan/policies/soft_relaxation.h"
#include "tests/core/plan/random_instances.h"

namespace paceline {
namespace {

int StagesFor(const PlanProblem& problem, uint64_t seed) {
  const uint64_t most = std::min(problem.layers.size(), problem.devices.size());
  return static_cast<int>(1 + seed % most);
}

TEST(SoftMath, ExpIsCloseToTheLibrarys) {
  for (double x = -600; x <= 0; x += 0.37) {
    EXPECT_NEAR(ExpOf(x), std::exp(x), 1e-12 * std::exp(x)) << x;
  }
  EXPECT_EQ(ExpOf(0), 1);
  EXPECT_EQ(ExpOf(-1e9), 0);
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

TEST(Relaxation, HardensToTheCostOfItsRounding) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    PlanProblem problem = RandomProblem(seed);
    if (problem.micro_batches == 0) problem.micro_batches = 5;
    for (Device& device : problem.devices) device.memory_bytes = 0;
    const CostTable tables(problem);
    const int stages = StagesFor(problem, seed);
    Relaxation relaxation(tables, stages);
    std::vector<double> logits = RandomLogits(relaxation, stages, seed);
    const std::vector<WalkStage> placed = relaxation.Round(logits);
    WalkState state(tables);
    state.Reset(placed);
    const double hard = state.Evaluate().step_seconds;
    SettleCuts(tables, 0, placed, relaxation, logits);
    // Widths that put every cut on its layer.
    if (stages > 1) {
      const double free = tables.layers() - stages;
      for (int s = 0; s < stages; ++s) {
        const LayerRange layers = placed[s].layers;
        const double width = layers.last - layers.first - 1;
        logits[s] = std::log(std::max(width / std::max(free, 1.0), 1e-9));
      }
    }
    double unit = 0;
    for (int d = 0; d < tables.devices(); ++d) {
      unit += 1 / tables.Work({0, tables.layers()}, d);
    }
    std::vector<double> unused;

    const double soft =
        std::exp(relaxation.Loss(logits, {0.05, 0.1, 8, 1}, unused)) / unit;

    // The pairs of a ring have a mean of order 8 for their largest.
    const bool rings = problem.training && problem.replicas;
    EXPECT_NEAR(soft, hard, (rings ? 0.3 : 0.02) * hard) << "seed " << seed;
  }
}

TEST(Relaxation, RoundsToAPlacementAlways) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const CostTable tables(problem);
    const int stages = StagesFor(problem, seed);
    Relaxation relaxation(tables, stages);
    WalkState state(tables);

    state.Reset(relaxation.Round(RandomLogits(relaxation, stages, seed)));

    EXPECT_EQ(state.size(), stages);
    const auto cost = CostOf(problem, state.ToPlacement());
    EXPECT_TRUE(cost.ok()) << cost.status();
    for (int s = 0; s < stages && !problem.replicas; ++s) {
      EXPECT_EQ(state.stage(s).devices.size(), 1u);
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

TEST(SettleCuts, BalancesTheStagesOfTheGivenDevices) {
  PlanProblem problem;
  problem.layers.assign(100, {"layer", 1, 0, 0, 0, 0});
  problem.devices.resize(2);
  problem.devices[1].speed = 4;
  problem.links.assign(2, std::vector<LinkCost>(2, {1e9, 0}));
  const CostTable tables(problem);
  Relaxation relaxation(tables, 2);
  std::vector<double> logits(relaxation.size(), 0);
  std::vector<WalkStage> placed(2);
  placed[0].layers = {0, 50};
  placed[0].devices = {0};
  placed[1].layers = {50, 100};
  placed[1].devices = {1};

  SettleCuts(tables, 64, placed, relaxation, logits);

  const std::vector<WalkStage> settled = relaxation.Round(logits);
  EXPECT_NEAR(settled[0].layers.last, 20, 1);
  EXPECT_EQ(settled[0].devices, std::vector<int>{0});
  EXPECT_EQ(settled[1].devices, std::vector<int>{1});
}

}  // namespace
}  // namespace paceline
