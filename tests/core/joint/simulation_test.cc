#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/joint/world.h"
#include "tests/core/world/suite.h"

namespace paceline::joint_world {
namespace {

using world::RunSeeds;
using Totals = world::Totals<WorldResult>;
using PlantedFlaw = world::PlantedFlaw<JointFlaw>;

constexpr uint64_t kSchedules = 3'000;

TEST(JointSimulation, NoScheduleBreaksAnInvariantAndEveryMomentComesUp) {
  const Totals totals = RunSeeds(WorldOptions(), 1, kSchedules, 2, RunWorld);

  ASSERT_EQ(totals.first_broken, "")
      << "replay: joint_simulation --trace --seed " << totals.broken_seed;
  EXPECT_EQ(totals.schedules, static_cast<int64_t>(kSchedules));
  EXPECT_GT(totals.sum.faults, 2 * totals.schedules);
  EXPECT_GT(totals.sum.checkpoints, totals.schedules);
  EXPECT_THAT(totals.coverage.Problems(totals.schedules), ::testing::IsEmpty());
}

TEST(JointWorld, TheSameSeedIsTheSameScheduleWhoeverWatches) {
  world::ExpectTheSameWhoeverWatches(RunWorld);
}

class Flawed : public ::testing::TestWithParam<PlantedFlaw> {};

TEST_P(Flawed, IsCaughtWithinItsSchedules) {
  world::ExpectCaught(GetParam(), RunWorld);
}

INSTANTIATE_TEST_SUITE_P(
    Joint, Flawed,
    ::testing::Values(PlantedFlaw{JointFlaw::kSayUnconfirmed, 2'000},
                      PlantedFlaw{JointFlaw::kViewOutsideAttempt, 2'000},
                      PlantedFlaw{JointFlaw::kJoinerAdopts, 2'000},
                      PlantedFlaw{JointFlaw::kStopAtReportedStep, 2'000},
                      PlantedFlaw{JointFlaw::kMixDepositors, 2'000},
                      PlantedFlaw{JointFlaw::kFloorIsBase, 2'000}));

}  // namespace
}  // namespace paceline::joint_world
