#include "core/plan/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "core/base/random.h"
#include "tests/core/plan/random_instances.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// Three layers of 1 s forward and 2 s back, 10 bytes out, 100 bytes of
// parameters, 5 kept; devices of speeds 1, 2 and 4; 10 bytes/s and 0.5 s from
// each to each.
PlanProblem Three() {
  PlanProblem problem;
  for (int i = 0; i < 3; ++i) {
    LayerCost layer;
    layer.name = std::string("layer") + std::to_string(i);
    layer.forward_seconds = 1;
    layer.backward_seconds = 2;
    layer.output_bytes = 10;
    layer.parameter_bytes = 100;
    layer.kept_bytes = 5;
    problem.layers.push_back(layer);
    Device device;
    device.name = std::string("device") + std::to_string(i);
    device.speed = 1 << i;
    problem.devices.push_back(device);
  }
  problem.links.assign(3, std::vector<LinkCost>(3, {10, 0.5}));
  problem.micro_batches = 4;
  return problem;
}

PlacementCost Cost(const PlanProblem& problem, const Placement& placement) {
  return Value(CostOf(problem, placement));
}

TEST(CostOf, APipelineFillsOnceAndThenGoesAtTheBottlenecksPace) {
  // 3 s on device 0, 1.5 s on device 2; activation and gradient 1 s each with
  // 0.5 s of latency.
  const PlacementCost cost =
      Cost(Three(), {{{0, 1}, {0}, {1}}, {{1, 3}, {2}, {1}}});

  EXPECT_THAT(cost.stage_seconds, testing::ElementsAre(3, 1.5));
  EXPECT_THAT(cost.transfer_seconds, testing::ElementsAre(3));
  EXPECT_DOUBLE_EQ(cost.bottleneck_seconds, 3);
  EXPECT_DOUBLE_EQ(cost.step_seconds, 3 + 3 + 1.5 + 3 * 3);
}

TEST(CostOf, ReplicasShareTheWorkAndSynchroniseOnceAStep) {
  PlanProblem problem = Three();
  problem.micro_batches = 100;
  // W = 9 and 2.25: together 1.8 s.  The ring takes 2 x (1/2 x 300 / 10 + 0.5)
  // = 31 s, over 100 micro-batches.
  problem.overlap = false;

  EXPECT_THAT(
      SharesFor(problem, {0, 3}, {0, 2}),
      testing::ElementsAre(testing::DoubleEq(0.2), testing::DoubleEq(0.8)));
  EXPECT_DOUBLE_EQ(
      Cost(problem, {{{0, 3}, {0, 2}, {0.2, 0.8}}}).bottleneck_seconds,
      1.8 + 0.31);
}

TEST(CostOf, EvenSharesAreAskedForByName) {
  PlanProblem problem = Three();
  problem.uneven_shares = false;

  EXPECT_THAT(SharesFor(problem, {0, 3}, {0, 2}),
              testing::ElementsAre(0.5, 0.5));
}

TEST(CostOf, DevicesThatHaveNothingToDoShareEvenly) {
  PlanProblem problem = Three();
  problem.devices[2].layer_seconds = {0, 0, 0};

  EXPECT_THAT(SharesFor(problem, {0, 3}, {0, 2}),
              testing::ElementsAre(0.5, 0.5));
}

TEST(CheckMemory, NamesTheDeviceItsLayersAndTheDifference) {
  PlanProblem problem = Three();
  problem.devices[1].memory_bytes = 600;
  const Placement placement = {{{0, 3}, {1}, {1}}};
  const PlacementCost cost = Cost(problem, placement);

  const absl::Status status = CheckMemory(problem, placement, cost);

  ExpectError(status, absl::StatusCode::kResourceExhausted,
              HasSubstr("device1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("layer0 to layer2"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("15 B too much"));
  problem.devices[1].memory_bytes = 615;
  EXPECT_TRUE(CheckMemory(problem, placement, cost).ok());
}

TEST(CostOf, RefusesWhatIsNoPlacement) {
  const PlanProblem problem = Three();
  const Placement bad[] = {
      {},
      {{{0, 2}, {0}, {1}}},                      // a layer is missing
      {{{1, 3}, {0}, {1}}},                      // starts late
      {{{0, 2}, {0}, {1}}, {{1, 3}, {1}, {1}}},  // a layer twice
      {{{0, 0}, {0}, {1}}, {{0, 3}, {1}, {1}}},  // an empty stage
      {{{0, 3}, {}, {}}},                        // nobody
      {{{0, 3}, {0, 1}, {1}}},                   // a share is missing
      {{{0, 3}, {3}, {1}}},                      // no such device
      {{{0, 3}, {-1}, {1}}},                     // nor this one
      {{{0, 1}, {0}, {1}}, {{1, 3}, {0}, {1}}},  // a device twice
      {{{0, 3}, {0, 1}, {1, 0}}},                // a share of nothing
      {{{0, 3}, {0, 1}, {0.5, 0.6}}},            // more than all
      {{{0, 3}, {0}, {std::nan("")}}},
  };

  for (const Placement& placement : bad) {
    EXPECT_EQ(CostOf(problem, placement).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// The judge was written apart, and finds the step by sending its micro-batches
// through one by one.
TEST(CostOf, AgreesWithTheJudgeOnPlacementsOfChance) {
  SplitMix64 random(7);
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const Placement placement = RandomPlacement(problem, random);

    const PlacementCost cost = Cost(problem, placement);
    const Judgement judged = Judge(problem, placement);

    const auto near = [](double seconds) { return 1e-9 * seconds; };
    ASSERT_EQ(cost.stage_seconds.size(), judged.stage_seconds.size());
    for (size_t s = 0; s < placement.size(); ++s) {
      EXPECT_NEAR(cost.stage_seconds[s], judged.stage_seconds[s],
                  near(judged.stage_seconds[s]))
          << "seed " << seed << " stage " << s;
    }
    EXPECT_NEAR(cost.bottleneck_seconds, judged.bottleneck_seconds,
                near(judged.bottleneck_seconds))
        << "seed " << seed;
    EXPECT_NEAR(cost.step_seconds, judged.step_seconds,
                near(judged.step_seconds))
        << "seed " << seed;
    EXPECT_EQ(cost.memory_bytes, judged.memory_bytes) << "seed " << seed;
    EXPECT_EQ(CheckMemory(problem, placement, cost).ok(), judged.fits)
        << "seed " << seed;
  }
}

TEST(Ties, CostTheirTrafficOnceAStepWhereTheyAreCut) {
  PlanProblem problem = ProblemOf({1, 1, 1}, {1, 1});
  SetLinks(problem, {100, 0.5});
  problem.micro_batches = 4;
  const Placement together = {{{0, 3}, {0}, {1}}};
  const Placement cut = {{{0, 2}, {0}, {1}}, {{2, 3}, {1}, {1}}};
  const double before = CostOf(problem, cut)->step_seconds;
  const double alone = CostOf(problem, together)->step_seconds;
  problem.ties = {{0, 2, 300}};

  // There and back at 100 bytes a second, and two latencies.
  EXPECT_DOUBLE_EQ(CostOf(problem, cut)->step_seconds, before + 6 + 1);
  EXPECT_DOUBLE_EQ(CostOf(problem, together)->step_seconds, alone);
  problem.ties = {{0, 1, 300}};
  EXPECT_DOUBLE_EQ(CostOf(problem, cut)->step_seconds, before) << "not cut";
}

}  // namespace
}  // namespace paceline
