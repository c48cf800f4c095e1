#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/recover/world.h"
#include "tests/core/world/suite.h"

namespace paceline::recover_world {
namespace {

using world::RunSeeds;
using Totals = world::Totals<WorldResult>;
using PlantedFlaw = world::PlantedFlaw<RecoverFlaw>;

constexpr uint64_t kSchedules = 5'000;

TEST(RecoverSimulation, NoScheduleBreaksAnInvariantAndEveryRowComesUp) {
  const Totals totals =
      RunSeeds(WorldOptions(), 5'001, kSchedules, 2, RunWorld);

  ASSERT_EQ(totals.first_broken, "")
      << "replay: recover_simulation --trace --seed " << totals.broken_seed;
  EXPECT_EQ(totals.schedules, static_cast<int64_t>(kSchedules));
  EXPECT_GT(totals.sum.faults, 3 * totals.schedules);
  EXPECT_GT(totals.sum.floors, totals.schedules);
  EXPECT_THAT(totals.coverage.Problems(totals.schedules), ::testing::IsEmpty());
}

class RecoverSeeds : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RecoverSeeds, AreStillRight) {
  world::ExpectRight(GetParam(), RunWorld);
}

// Seeds that once found a mistake stay, though what a seed draws changes with
// the world.
INSTANTIATE_TEST_SUITE_P(Past, RecoverSeeds,
                         ::testing::Values(7110, 17906, 20022, 29882, 48834,
                                           184155, 1163121));

TEST(RecoverWorld, TheSameSeedIsTheSameScheduleWhoeverWatches) {
  world::ExpectTheSameWhoeverWatches(RunWorld);
}

class Flawed : public ::testing::TestWithParam<PlantedFlaw> {};

TEST_P(Flawed, IsCaughtWithinItsSchedules) {
  world::ExpectCaught(GetParam(), RunWorld);
}

INSTANTIATE_TEST_SUITE_P(
    Core, Flawed,
    ::testing::Values(PlantedFlaw{RecoverFlaw::kMixAttempts, 5'000},
                      PlantedFlaw{RecoverFlaw::kAnnounceFirst, 100},
                      PlantedFlaw{RecoverFlaw::kCountWorkers, 2'000, 8'001},
                      PlantedFlaw{RecoverFlaw::kReuseAttempt, 20'000},
                      PlantedFlaw{RecoverFlaw::kForgetFloor, 5'000},
                      PlantedFlaw{RecoverFlaw::kAcceptExcluded, 20'000},
                      PlantedFlaw{RecoverFlaw::kLeaveByStaleReport, 10'000},
                      PlantedFlaw{RecoverFlaw::kBeginTwice, 40'000},
                      PlantedFlaw{RecoverFlaw::kFloorIsBase, 2'000, 5'001},
                      PlantedFlaw{RecoverFlaw::kCopiesOfAttached, 20'000},
                      PlantedFlaw{RecoverFlaw::kNextAttemptOnly, 2'000, 45'001},
                      PlantedFlaw{RecoverFlaw::kPruneOwn, 1'000},
                      PlantedFlaw{RecoverFlaw::kKeepList, 1'000},
                      PlantedFlaw{RecoverFlaw::kUnequalStop, 5'000},
                      PlantedFlaw{RecoverFlaw::kMarkByStage, 1'000},
                      PlantedFlaw{RecoverFlaw::kStopClosesGate, 5'000},
                      PlantedFlaw{RecoverFlaw::kGateFromZero, 1'000},
                      PlantedFlaw{RecoverFlaw::kTornDeposit, 1'000},
                      PlantedFlaw{RecoverFlaw::kStandstillCounts, 5'000}));

}  // namespace
}  // namespace paceline::recover_world
