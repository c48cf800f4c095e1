#include <ostream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/world.h"

namespace paceline {
namespace {

// 20,000 schedules in four parts, which can run beside each other.
constexpr uint64_t kSchedules = 5'000;

class RoundSimulation : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RoundSimulation, NoScheduleOfFaultsBreaksAnInvariant) {
  Coverage coverage;
  for (uint64_t i = 1; i <= kSchedules; ++i) {
    WorldOptions options;
    options.seed = GetParam() * kSchedules + i;
    const WorldResult result = RunWorld(options, &coverage);
    ASSERT_EQ(result.violation, "")
        << "replay: round_simulation --seed " << options.seed << " --trace";
    ASSERT_GE(result.rounds, 5) << "seed " << options.seed;
  }
  for (int fault = 0; fault < kFaults; ++fault) {
    for (int phase = 0; phase < kRoundPhases; ++phase) {
      EXPECT_GT(coverage.fault_in_phase[fault][phase], 0)
          << FaultName(static_cast<Fault>(fault)) << " never hit a member in "
          << RoundPhaseName(static_cast<RoundPhase>(phase));
    }
  }
  // A listener meets these only where a view excludes a holder while it is
  // asked: too rare for so few schedules.
  EXPECT_THAT(UnhitText(coverage),
              ::testing::AnyOf("", "listening: fetch\n", "listening: fetched\n",
                               "listening: fetch\nlistening: fetched\n"));
}

INSTANTIATE_TEST_SUITE_P(Quarters, RoundSimulation,
                         ::testing::Values(0, 1, 2, 3));

class RoundSeeds : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RoundSeeds, AreStillRight) {
  WorldOptions options;
  options.seed = GetParam();
  EXPECT_EQ(RunWorld(options, nullptr).violation, "");
}

// Schedules that once found a mistake stay, whatever the seeds above become.
INSTANTIATE_TEST_SUITE_P(Past, RoundSeeds,
                         ::testing::Values(12, 149, 353, 867, 1156, 1256, 1869,
                                           3909, 5416, 6657));

TEST(RoundWorld, TheSameSeedIsTheSameSchedule) {
  WorldOptions options;
  options.seed = 7;
  const WorldResult first = RunWorld(options, nullptr);
  const WorldResult again = RunWorld(options, nullptr);
  EXPECT_EQ(first.events, again.events);
  EXPECT_EQ(first.rounds, again.rounds);
}

}  // namespace

// For ctest's list of names.
void PrintTo(RoundFlaw flaw, std::ostream* out) {
  *out << "flaw " << static_cast<int>(flaw);
}

namespace {

class Flawed : public ::testing::TestWithParam<RoundFlaw> {};

TEST_P(Flawed, IsCaught) {
  WorldOptions options;
  options.flaw = GetParam();
  for (options.seed = 1; options.seed <= 20'000; ++options.seed) {
    if (!RunWorld(options, nullptr).violation.empty()) return;
  }
  FAIL() << "flaw " << static_cast<int>(GetParam())
         << " went through 20,000 schedules";
}

INSTANTIATE_TEST_SUITE_P(
    Core, Flawed,
    ::testing::Values(
        RoundFlaw::kAnswerWithoutAdopting, RoundFlaw::kLevelWithoutAll,
        RoundFlaw::kCommitWithoutHolds, RoundFlaw::kCommitWithMostHolds,
        RoundFlaw::kIgnoreHeldWhenLevelling, RoundFlaw::kKeepPartsOverAttempts,
        RoundFlaw::kTornCopy, RoundFlaw::kShardsMoveWithView,
        RoundFlaw::kDivisorIsMembers, RoundFlaw::kLatePartJoinsNextRound,
        RoundFlaw::kSumInOrderOfArrival, RoundFlaw::kSendViewBeforeItIsDurable,
        RoundFlaw::kJoinerServesBehind, RoundFlaw::kAddLatePartAfterClosing,
        RoundFlaw::kMixDivisions));

}  // namespace
}  // namespace paceline
