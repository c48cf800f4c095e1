#include "core/plan/stage_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/model/catalog.h"
#include "core/plan/inputs.h"
#include "core/plan/plan.h"
#include "core/schedule/schedule.h"
#include "tests/core/plan/random_instances.h"
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

// One of several models, cut somewhere, that a job trains or infers with.
struct RandomJob {
  JobSpec spec;
  ModelDescription model;
  std::vector<PlannerWorker> workers;  // one a stage
};

RandomJob RandomJobOf(uint64_t seed) {
  SplitMix64 random(seed);
  const auto one_of = [&random](const std::vector<std::string>& words) {
    return words[random.Below(words.size())];
  };
  RandomJob job;
  JobSpec& spec = job.spec;
  spec.model = DefaultModel("gpt");
  spec.model.width = 8 + 8 * static_cast<int>(random.Below(3));
  if (random.Below(3) == 0) spec.model.lora.rank = 2;
  spec.precision = one_of({"fp32", "bf16"});
  spec.train.micro_batch = 1 + static_cast<int>(random.Below(4));
  spec.train.batch = spec.train.micro_batch * (1 + random.Below(9)) * 6;
  spec.train.optimizer.name = one_of({"sgd", "adamw"});
  spec.train.activation_checkpointing =
      one_of({"none", "none", "stage", "every-1", "every-2", "every-3"});
  spec.pipeline.schedule = one_of(ScheduleNames());
  spec.pipeline.vertical_sync = random.Below(2) == 0;
  spec.pipeline.codec = one_of({"fp32", "bf16", "int8"});
  if (random.Below(4) == 0) {
    spec.kind = kInferKind;
    spec.infer.micro_batch = spec.train.micro_batch;
    spec.train = ForInference(spec.infer, 1);
  }
  job.model = Value(DescribeModel(spec.model, {8}, 16));
  if (random.Below(3) == 0) {
    job.model.teacher = std::make_shared<const ModelDescription>(job.model);
  }
  for (int cut = 1; cut < std::ssize(job.model.layers); ++cut) {
    if (random.Below(3) == 0) spec.pipeline.cuts.push_back(cut);
  }
  for (size_t s = 0; s <= spec.pipeline.cuts.size(); ++s) {
    job.workers.push_back(
        {WorkerId{static_cast<int64_t>(s)}, absl::StrCat("w", s), 0, ""});
    spec.pipeline.workers.push_back(job.workers.back().name);
  }
  return job;
}

// A search that counted less than the check would return plans that the check
// refuses; one that counted more would miss plans that fit.
TEST(StageBytes, IsWhatTheCheckOfAPlanCounts) {
  int checked = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto& [spec, model, workers] = RandomJobOf(seed);
    const auto plan = MakePlan(spec, model, workers);
    if (absl::IsInvalidArgument(plan.status())) continue;  // micro-batches
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<InputWorker> devices;
    for (const PlannerWorker& worker : workers)
      devices.push_back({worker.name, "", 0});
    const PlanProblem problem =
        MakePlanInputs(spec, model, devices, {}).problem;

    const int stages = static_cast<int>(workers.size());
    for (int s = 0; s < stages; ++s) {
      const double search =
          StageBytes(problem, plan->stages[s].layers, {1, s, stages - 1 - s});
      const auto check = static_cast<double>(BytesOn(*plan, workers[s].worker));
      const std::string where =
          absl::StrCat("seed ", seed, ", stage ", s, " of ", stages, ", ",
                       spec.pipeline.schedule, " ", spec.precision, " ",
                       spec.train.activation_checkpointing);
      EXPECT_GE(search, check) << where;
      // A version's casts are counted of what is borrowed too.
      const bool casts = problem.stashes && spec.precision == "bf16";
      EXPECT_LE(search, (casts ? 1.2 : 1) * check + 100) << where;
      ++checked;
    }
  }
  EXPECT_GT(checked, 700);
}

}  // namespace
}  // namespace paceline
