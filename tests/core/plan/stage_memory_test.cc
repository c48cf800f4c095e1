#include "core/plan/stage_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/plan/policy.h"
#include "core/schedule/schedule.h"
#include "tests/core/plan/random_instances.h"
#include "tests/core/plan/small_problem.h"

namespace paceline {
namespace {

// Of one stage, counted along its instructions.
struct Live {
  int kept = 0;
  int split = 0;
};

std::vector<Live> LiveOf(const Schedule& schedule) {
  std::vector<Live> most(schedule.stages), now(schedule.stages);
  for (const InstructionList& list : schedule.workers) {
    for (const Instruction& instruction : list) {
      Live& live = now[instruction.stage];
      switch (instruction.op) {
        case Op::kForward:
          if (schedule.training) ++live.kept;
          break;
        case Op::kBackward:
          --live.kept;
          break;
        case Op::kBackwardInput:
          ++live.split;
          break;
        case Op::kBackwardWeight:
          --live.split;
          --live.kept;
          break;
        default:
          break;
      }
      most[instruction.stage].kept =
          std::max(most[instruction.stage].kept, live.kept);
      most[instruction.stage].split =
          std::max(most[instruction.stage].split, live.split);
    }
  }
  return most;
}

// Of a stream that is long beside its stages where nothing is flushed.
Schedule Made(ScheduleRequest request) {
  if (ScheduleTraitsOf(request.name).asynchronous && request.training) {
    request.micro_batches += 2 * request.stages;
  }
  const auto schedule = MakeSchedule(request);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.ok() ? *schedule : Schedule();
}

std::vector<int> VersionsOf(const Schedule& schedule) {
  const auto bounds = CheckSchedule(schedule);
  EXPECT_TRUE(bounds.ok()) << bounds.status();
  return bounds.ok() ? bounds->kept_versions
                     : std::vector<int>(schedule.stages, -1);
}

TEST(InFlightOf, IsWhatTheInstructionsOfEveryScheduleKeep) {
  SplitMix64 random(11);
  int checked = 0;
  for (int round = 0; round < 200; ++round) {
    for (const std::string& name : ScheduleNames()) {
      for (const bool training : {true, false}) {
        ScheduleRequest request;
        request.name = name;
        request.stages = 1 + static_cast<int>(random.Below(9));
        request.micro_batches = 1 + static_cast<int>(random.Below(20));
        request.training = training;
        request.worker_of.resize(request.stages);
        std::iota(request.worker_of.begin(), request.worker_of.end(), 0);
        const Schedule schedule = Made(request);
        const std::vector<Live> live = LiveOf(schedule);
        const std::vector<int> versions = VersionsOf(schedule);
        PlanProblem problem;
        problem.training = training;
        problem.micro_batches = request.micro_batches;
        CountMemoryOf(name, problem);

        for (int stage = 0; stage < request.stages; ++stage) {
          const InFlight<double> counted =
              InFlightOf(problem, {1, stage, request.stages - 1 - stage});
          const std::string where =
              name + (training ? " training" : " inference") + ", stage " +
              std::to_string(stage) + " of " + std::to_string(request.stages) +
              ", " + std::to_string(request.micro_batches) + " micro-batches";
          EXPECT_EQ(counted.kept, live[stage].kept) << where;
          EXPECT_EQ(counted.split, live[stage].split) << where;
          EXPECT_EQ(counted.stashed + 1, versions[stage]) << where;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 5000);
}

// Three layers of 100 bytes of parameters, 5 kept and 10 out.
PlanProblem Three() {
  PlanProblem problem = ProblemOf({1, 1, 1}, {1, 1, 1});
  problem.micro_batches = 4;
  for (LayerCost& layer : problem.layers) {
    layer.output_bytes = 10;
    layer.parameter_bytes = 100;
    layer.kept_bytes = 5;
  }
  return problem;
}

TEST(StageBytes, CountsWhatIsKeptAndStashed) {
  PlanProblem problem = Three();
  problem.reserved_bytes = 7;

  EXPECT_DOUBLE_EQ(StageBytes(problem, {0, 3}, {1, 0, 2}), 600 + 3 * 15 + 7);
  EXPECT_DOUBLE_EQ(StageBytes(problem, {0, 3}, {2, 0, 3}), 600 + 2 * 15 + 7);
  problem.keeps_all = true;
  EXPECT_DOUBLE_EQ(StageBytes(problem, {0, 3}, {1, 0, 0}), 600 + 4 * 15 + 7);
  EXPECT_DOUBLE_EQ(StageBytes(problem, {0, 3}, {3, 0, 0}), 600 + 2 * 15 + 7);
  problem.keeps_all = false;
  problem.stashes = true;
  EXPECT_DOUBLE_EQ(StageBytes(problem, {0, 3}, {1, 0, 2}),
                   600 + 200 * 3 + 45 + 7);
  problem.training = false;
  EXPECT_DOUBLE_EQ(StageBytes(problem, {0, 3}, {1, 0, 2}), 600 + 7);
}

TEST(StageBytes, OfHalvesGrowsWithTheStagesBefore) {
  PlanProblem problem = Three();
  problem.splits = true;

  // Kept: as many as there are stages; between halves: one, and one for each
  // stage before.
  EXPECT_DOUBLE_EQ(StageBytes(problem, {0, 1}, {1, 0, 2}),
                   200 + 3 * 5 + 1 * 10 + 2 * 10);
  EXPECT_DOUBLE_EQ(StageBytes(problem, {1, 2}, {1, 1, 1}),
                   200 + 3 * 5 + 2 * 10 + 2 * 20);
  EXPECT_DOUBLE_EQ(StageBytes(problem, {2, 3}, {1, 2, 0}),
                   200 + 3 * 5 + 3 * 10 + 2 * 10);
  problem.micro_batches = 2;
  EXPECT_DOUBLE_EQ(StageBytes(problem, {2, 3}, {1, 2, 0}),
                   200 + 2 * 5 + 2 * 10 + 2 * 10);
}

TEST(StageBytes, OfABorrowedParameterHasNoOptimizerState) {
  PlanProblem problem = Three();
  problem.parameter_copies = 4;  // itself, its gradient, two of AdamW
  problem.owner_copies = 2;
  problem.layers[2].borrowed_bytes = 60;

  EXPECT_DOUBLE_EQ(StageBytes(problem, {2, 3}, {1, 0, 0}),
                   4 * 40 + 2 * 60 + 5 + 20);
}

// What the search does not know of earlier stages is not lost.
TEST(SolvePlan, FitsHalvesWhereTheyFitAndProvesIt) {
  int planned = 0;
  int tighter = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    PlanProblem problem = RandomProblem(seed);
    problem.training = true;
    problem.replicas = false;
    problem.splits = false;
    const auto whole = SolvePlan("dp", problem, {});
    problem.splits = true;
    const auto brute = SolvePlan("brute", problem, {});
    const auto dp = SolvePlan("dp", problem, {});

    ASSERT_EQ(brute.ok(), dp.ok()) << seed << " " << dp.status();
    if (!dp.ok()) {
      tighter += whole.ok();
      continue;
    }
    ++planned;
    EXPECT_TRUE(dp->exact) << seed;
    EXPECT_TRUE(Judge(problem, dp->placement).fits) << seed;
    ASSERT_NEAR(dp->cost.step_seconds, brute->cost.step_seconds,
                1e-9 * brute->cost.step_seconds)
        << seed;
    ASSERT_TRUE(whole.ok()) << seed;
    tighter += dp->cost.step_seconds > whole->cost.step_seconds * (1 + 1e-9);
  }
  EXPECT_GT(planned, 300);
  // Problems that could not show a difference would prove nothing.
  EXPECT_GT(tighter, 20);
}

TEST(SolvePlan, GivesHalvesNoReplicas) {
  PlanProblem problem = ProblemOf({4}, {1, 1});
  problem.splits = true;

  const auto answer = SolvePlan("dp", problem, {});

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->placement[0].devices.size(), 1u);
}

TEST(CheckProblem, RefusesMoreBorrowedThanThereIs) {
  PlanProblem problem = Three();
  problem.layers[1].borrowed_bytes = 101;
  EXPECT_EQ(CheckProblem(problem).message(),
            "layer 1 (layer1): borrowed_bytes is 101, more than all its "
            "parameter_bytes, 100");
  problem.layers[1].borrowed_bytes = NAN;
  EXPECT_FALSE(CheckProblem(problem).ok());
  problem.layers[1].borrowed_bytes = 0;
  problem.owner_copies = 3;
  EXPECT_EQ(CheckProblem(problem).message(),
            "memory: owner_copies is 3, more than all parameter_copies, 2");
}

}  // namespace
}  // namespace paceline
