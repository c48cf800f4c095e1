#include <algorithm>
#include <functional>
#include <vector>

#include "core/plan/cost_table.h"
#include "core/plan/search/policies.h"
#include "gtest/gtest.h"
#include "tests/core/plan/random_instances.h"
#include "tests/core/plan/small_problem.h"

namespace paceline {
namespace {

// RandomPlacement asks neither for the number of stages nor about replicas.
bool IsAllowed(const PlanProblem& problem, const Placement& placement) {
  if (problem.stages > 0 &&
      static_cast<int>(placement.size()) != problem.stages) {
    return false;
  }
  return problem.replicas || std::all_of(placement.begin(), placement.end(),
                                         [](const PlacedStage& stage) {
                                           return stage.devices.size() == 1;
                                         });
}

// Whatever its shares are.
TEST(LowerBound, IsUnderEveryPlacementThatIsAllowed) {
  SplitMix64 random(5);
  int judgements = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const Placement placement = RandomPlacement(problem, random);
    if (!IsAllowed(problem, placement)) continue;

    const Judgement judged = Judge(problem, placement);

    if (!judged.fits) continue;
    EXPECT_LE(LowerBoundSeconds(problem), judged.step_seconds * (1 + 1e-9))
        << seed;
    ++judgements;
  }
  EXPECT_GT(judgements, 100);
}

TEST(LowerBound, IsWhatOneFindsByHand) {
  struct Case {
    const char* why;
    double seconds;
    std::vector<double> layers;
    std::vector<double> speeds;
    std::function<void(PlanProblem&)> change;
  };
  const std::vector<double> twelve(12, 1.0);
  const std::vector<double> slow_and_fast = {0.1, 0.1, 1, 1};
  const auto alone = [](PlanProblem& p) { p.replicas = false; };
  const Case cases[] = {
      {"total work over total speed", 12 / 2.2, twelve, slow_and_fast,
       [](PlanProblem&) {}},
      {"whole layers without replicas", 6, twelve, slow_and_fast, alone},
      {"the largest layer on the fastest device",
       4,
       {1, 8, 1},
       {1, 2, 1},
       alone},
      {"two seconds to fill, eight more at a second each",
       10,
       {1, 1},
       {1, 1},
       [](PlanProblem& p) {
         p.replicas = false;
         p.micro_batches = 9;
       }},
      {"two layers, and a frame there and back: 2 x (1 + 0.5)",
       5,
       {1, 1},
       {1, 1},
       [](PlanProblem& p) {
         SetLinks(p, {1, 0.5});
         SetOutputs(p, {1});
         p.micro_batches = 1;
         p.replicas = false;
         p.stages = 2;
       }},
      {"shared: two seconds each, three to synchronise beside them; alone four",
       3,
       {4},
       {1, 1},
       [](PlanProblem& p) {
         p.layers[0].parameter_bytes = 3;
         SetLinks(p, {1, 0});
       }},
      {"a model that takes no time", 0, {0, 0}, {1, 2}, [](PlanProblem&) {}},
  };
  for (const Case& each : cases) {
    PlanProblem problem = ProblemOf(each.layers, each.speeds);
    each.change(problem);

    EXPECT_NEAR(LowerBoundSeconds(problem), each.seconds, 1e-4) << each.why;
  }
}

TEST(PackingBound, KnowsWhatMemoryHolds) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, {1, 1});
  for (LayerCost& layer : problem.layers) layer.parameter_bytes = 10;
  problem.devices[0].memory_bytes = 25;
  problem.replicas = false;

  // Two copies of ten bytes a layer: the first holds one layer.
  EXPECT_NEAR(PackingBoundSeconds(CostTable(problem)), 3, 1e-5);
}

}  // namespace
}  // namespace paceline
