#include "core/round/round_member.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/world/world.h"
#include "tests/core/world/suite.h"

namespace paceline::round_world {
namespace {

using world::Coverage;
using world::RunSeeds;
using Totals = world::Totals<WorldResult>;
using PlantedFlaw = world::PlantedFlaw<RoundFlaw>;

constexpr uint64_t kSchedules = 10'000;

TEST(RoundSimulation, NoScheduleOfFaultsBreaksAnInvariantAndEveryCellComesUp) {
  const Totals totals = RunSeeds(WorldOptions(), 1, kSchedules, 2, RunWorld);

  ASSERT_EQ(totals.first_broken, "")
      << "replay: round_simulation --trace --seed " << totals.broken_seed;
  EXPECT_EQ(totals.schedules, static_cast<int64_t>(kSchedules));
  EXPECT_GE(totals.fewest.rounds, kLeastRounds);
  EXPECT_GE(totals.fewest.faults, kLeastFaults);
  EXPECT_EQ(totals.fewest.members, 3);
  EXPECT_EQ(totals.most.members, 7);
  EXPECT_THAT(totals.coverage.Problems(kSchedules), ::testing::IsEmpty());
}

class RoundSeeds : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RoundSeeds, AreStillRight) { world::ExpectRight(GetParam(), RunWorld); }
// Seeds that once found a mistake stay, though what a seed draws changes with
// the world.
INSTANTIATE_TEST_SUITE_P(Past, RoundSeeds,
                         ::testing::Values(12, 149, 353, 867, 1156, 1256, 1869,
                                           3909, 5416, 6657, 23248, 644749));

TEST(RoundWorld, TheSameSeedIsTheSameScheduleWhoeverWatches) {
  world::ExpectTheSameWhoeverWatches(RunWorld);
}

std::vector<PlantedFlaw> AllFlaws() {
  std::vector<PlantedFlaw> all;
  for (int flaw = 1; flaw < kRoundFlaws; ++flaw) {
    all.push_back({static_cast<RoundFlaw>(flaw), 20'000});
  }
  return all;
}

class Flawed : public ::testing::TestWithParam<PlantedFlaw> {};

TEST_P(Flawed, IsCaughtWithinItsSchedules) {
  world::ExpectCaught(GetParam(), RunWorld);
}

INSTANTIATE_TEST_SUITE_P(Core, Flawed, ::testing::ValuesIn(AllFlaws()));

// The tables themselves say why no schedule reaches a cell.
TEST(RoundCoverage, NamesWhatNeverCameUpAndWhatShouldNotHave) {
  Coverage coverage = WorldResult::NewCoverage();
  const size_t unhit = coverage.Problems(kSchedules).size();
  EXPECT_GT(unhit, 100u);

  coverage.Hit(Table::kServer, ServerState::kOpen, ServerEvent::kDeadline);
  EXPECT_EQ(coverage.Problems(kSchedules).size(), unhit - 1);
  coverage.Hit(Table::kServer, ServerState::kOpen, ServerEvent::kAllHold);
  EXPECT_EQ(coverage.Problems(kSchedules).size(), unhit);
  EXPECT_THAT(coverage.Problems(kSchedules),
              ::testing::Contains(::testing::HasSubstr(
                  "open x all hold came up, which is said to be impossible")));
}

TEST(RoundCoverage, AsksForWhatIsRareOfAMillionSchedulesAlone) {
  Coverage coverage = WorldResult::NewCoverage();
  const size_t unhit = coverage.Problems(999'999).size();
  EXPECT_EQ(coverage.Problems(1'000'000).size(), unhit + 4);
  EXPECT_THAT(coverage.Problems(1'000'000),
              ::testing::Contains(::testing::HasSubstr(
                  "says it is too old x listening never came up")));

  coverage.Hit(Table::kMember, MemberEvent::kTooOld,
               RoundMember::Phase::kListening);
  EXPECT_EQ(coverage.Problems(1'000'000).size(), unhit + 3);
  EXPECT_EQ(coverage.Problems(20'000).size(), unhit);
}

}  // namespace
}  // namespace paceline::round_world
