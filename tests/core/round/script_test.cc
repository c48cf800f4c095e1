// The `faults:` of a job in the simulated world: the same that workers do.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/world/world.h"

namespace paceline::round_world {
namespace {

using ::testing::HasSubstr;

JobSpec Job(int members, std::vector<FaultSpec> faults) {
  JobSpec job;
  job.train.steps = 300;
  job.aggregation.mode = "rolling";
  job.aggregation.members = members;
  job.aggregation.min_parts = 2;
  job.faults = std::move(faults);
  return job;
}

WorldResult RunScript(const JobSpec& job, uint64_t seed = 1) {
  const absl::StatusOr<JobScript> script = ScriptOf(job);
  EXPECT_TRUE(script.ok()) << script.status();
  WorldOptions options;
  options.seed = seed;
  options.script = *script;
  return RunWorld(options, nullptr);
}

TEST(RoundScript, NineMembersOfWhichTwoLieAndOneDies) {
  const WorldResult result = RunScript(Job(9, {{"w1", 0, "sign-flip", 0, 1, 10},
                                               {"w2", 0, "label-flip", 0},
                                               {"w9", 15, "kill"}}));

  ASSERT_EQ(result.violation, "");
  EXPECT_GE(result.rounds, 25);
  EXPECT_EQ(result.attempts, 1);
  const std::vector<WorkerTally>& workers = result.workers;
  ASSERT_EQ(workers.size(), 9u);
  EXPECT_GT(workers[0].parts, 20);
  EXPECT_EQ(workers[0].lies, workers[0].parts);
  EXPECT_EQ(workers[1].lies, workers[1].parts);
  EXPECT_EQ(workers[2].lies, 0);
  EXPECT_EQ(workers[8].last_step, 14);
  EXPECT_FALSE(workers[8].lives);
  EXPECT_TRUE(workers[7].lives);
}

// How many steps epochs are is not known without the data.
TEST(RoundScript, PlaysTheFaultsOfAJobWithEpochs) {
  JobSpec job = Job(3, {{"w2", 40, "kill"}});
  job.train.steps = 0;
  const WorldResult result = RunScript(job);

  ASSERT_EQ(result.violation, "");
  EXPECT_GE(result.rounds, 50);
  EXPECT_FALSE(result.workers[1].lives);
  EXPECT_EQ(result.workers[1].last_step, 39);
}

class KilledServer : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledServer, CostsItselfAndNothingElse) {
  FaultSpec kill{"w2", 5, "kill"};
  kill.phase = GetParam();
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const WorldResult result = RunScript(Job(5, {kill}), seed);

    ASSERT_EQ(result.violation, "") << "seed " << seed;
    EXPECT_FALSE(result.workers[1].lives);
    EXPECT_GE(result.workers[1].last_step, 4);
    EXPECT_LE(result.workers[1].last_step, 5 + 5) << "its turn as the server";
    EXPECT_EQ(result.workers[1].processes, 1);
    EXPECT_GE(result.rounds, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Phases, KilledServer,
                         ::testing::Values("computing", "gathering",
                                           "spreading", "committing"));

TEST(RoundScript, WhoHangsBeyondTheLeaseComesBackAsAnother) {
  const WorldResult result = RunScript(Job(4, {{"w3", 6, "hang", 1, 8}}));

  ASSERT_EQ(result.violation, "");
  EXPECT_TRUE(result.workers[2].lives);
  EXPECT_GT(result.workers[2].processes, 1);
  EXPECT_GT(result.views, 2);
}

TEST(RoundScript, WhoHangsForHalfTheLeaseStays) {
  const WorldResult result = RunScript(Job(4, {{"w3", 6, "hang", 1, 1.5}}));

  ASSERT_EQ(result.violation, "");
  EXPECT_EQ(result.workers[2].processes, 1);
  EXPECT_EQ(result.views, 1);
}

TEST(RoundScript, WhatIsSpoiltIsRefusedAndNeverCounted) {
  const WorldResult result =
      RunScript(Job(4, {{"w1", 0, "nan", 0}, {"w2", 0, "bit-flip", 0}}));

  ASSERT_EQ(result.violation, "");
  EXPECT_EQ(result.workers[0].parts, 0);
  EXPECT_EQ(result.workers[1].parts, 0);
  EXPECT_GT(result.workers[0].refused, 0);
  EXPECT_GT(result.workers[1].refused, 0);
  EXPECT_GT(result.workers[2].parts, 0);
}

TEST(RoundScript, WhoSaysEverythingTwiceCountsOnce) {
  const WorldResult result =
      RunScript(Job(3, {{"w1", 0, "duplicate", 0}, {"w2", 3, "delay", 2, 1}}));

  ASSERT_EQ(result.violation, "");
  EXPECT_EQ(result.workers[0].parts, result.rounds);
  EXPECT_LE(result.workers[1].parts, result.rounds);
}

TEST(RoundScript, AFaultOfAnUnknownWorkerIsRefused) {
  const auto script = ScriptOf(Job(3, {{"w4", 0, "nan"}}));

  ASSERT_FALSE(script.ok());
  EXPECT_EQ(script.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(script.status().message()),
              HasSubstr("faults[0].worker"));
}

TEST(RoundScript, AJobWithoutRoundsIsRefused) {
  JobSpec job = Job(3, {});
  for (const char* mode : {"none", "gossip"}) {
    job.aggregation.mode = mode;

    EXPECT_THAT(std::string(ScriptOf(job).status().message()),
                HasSubstr("set it to rolling or central"))
        << mode;
  }
}

}  // namespace
}  // namespace paceline::round_world
