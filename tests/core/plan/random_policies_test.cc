// Tests what both policies that draw random numbers promise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/plan/search/policies.h"
#include "tests/core/plan/random_instances.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

struct Policy {
  const char* name;
  absl::StatusOr<Placement> (*place)(const PlanProblem& problem, uint64_t seed);
};

class RandomPolicy : public ::testing::TestWithParam<Policy> {
 protected:
  absl::StatusOr<Placement> Place(const PlanProblem& problem,
                                  uint64_t seed = 1) const {
    return GetParam().place(problem, seed);
  }
};

TEST_P(RandomPolicy, SameSeedSamePlacement) {
  const PlanProblem problem = LargeProblem(40, 8, 3);

  const auto first = Value(Place(problem, 5));
  const auto second = Place(problem, 5);
  EXPECT_EQ(first, *second);
}

TEST_P(RandomPolicy, MakesAsManyStagesAsAsked) {
  PlanProblem problem = LargeProblem(20, 6, 2);
  problem.stages = 5;

  const auto placement = Value(Place(problem));

  EXPECT_EQ(placement.size(), 5u);
}

TEST_P(RandomPolicy, PlansOneLayerOnOneDevice) {
  const auto placement = Value(Place(LargeProblem(1, 1, 1)));

  EXPECT_EQ(placement, (Placement{{{0, 1}, {0}, {1}}}));
}

TEST_P(RandomPolicy, PlansAModelThatTakesNoTime) {
  PlanProblem problem = LargeProblem(5, 3, 1);
  for (LayerCost& layer : problem.layers) layer = {"layer", 0, 0, 0, 0, 0};

  const auto placement = Value(Place(problem));

  EXPECT_TRUE(CostOf(problem, placement).ok());
}

TEST_P(RandomPolicy, SaysWhichLayerFitsNowhere) {
  PlanProblem problem = LargeProblem(5, 3, 1);
  problem.layers[3].parameter_bytes = 1e9;
  for (Device& device : problem.devices) device.memory_bytes = 1e9;

  const auto placement = Place(problem);

  ExpectError(placement.status(), absl::StatusCode::kResourceExhausted,
              HasSubstr("layer3"));
}

INSTANTIATE_TEST_SUITE_P(Policies, RandomPolicy,
                         ::testing::Values(Policy{"mcmc", &McmcPlacement},
                                           Policy{"soft", &SoftPlacement}),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace paceline
