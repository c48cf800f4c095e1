#include "core/plan/stage_memory.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "core/base/random.h"
#include "core/plan/policy.h"
#include "core/schedule/schedule.h"
#include "tests/core/plan/random_instances.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

// Makes the schedule; its stream is long beside its stages where nothing is
// flushed.
Schedule Made(ScheduleRequest request) {
  if (ScheduleTraitsOf(request.name).asynchronous && request.training) {
    request.micro_batches += 2 * request.stages;
  }
  return Value(MakeSchedule(request));
}

TEST(InFlightOf, IsWhatEveryScheduleKeeps) {
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
        const auto bounds = Value(CheckSchedule(Made(request)));
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
          EXPECT_EQ(counted.kept, bounds.kept_micro_batches[stage]) << where;
          EXPECT_EQ(counted.split, bounds.split_micro_batches[stage]) << where;
          EXPECT_EQ(counted.stashed + 1, bounds.kept_versions[stage]) << where;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 5000);
}

TEST(SolvePlan, GivesHalvesNoReplicas) {
  PlanProblem problem = ProblemOf({4}, {1, 1});
  problem.splits = true;

  const auto answer = Value(SolvePlan("dp", problem, {}));

  EXPECT_EQ(answer.placement[0].devices.size(), 1u);
}

}  // namespace
}  // namespace paceline
