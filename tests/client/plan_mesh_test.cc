// What `paceline plan` says of a mesh besides what it says of any machines:
// stages that share workers, replicas, times that are predicted.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/model/description.h"
#include "core/plan/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/plan_bed.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(PlanForAMesh, OfMoreStagesThanWorkersHasWorkersHoldSeveral) {
  PlanBed job, option, fewer, table(OutputFormat::kTable);
  JobSpec spec = LenetSpec(16);
  spec.pipeline.stages = 4;

  ASSERT_EQ(job.RunMesh(spec, {.job_file = "job.yaml"}), kExitOk);
  ASSERT_EQ(option.RunMesh(LenetSpec(16), {.model = "lenet", .stages = 4}),
            kExitOk);
  ASSERT_EQ(fewer.RunMesh(spec, {.job_file = "job.yaml", .stages = 2}),
            kExitOk);
  ASSERT_EQ(table.RunMesh(spec, {.job_file = "job.yaml"}), kExitOk);

  const json plan = job.Output();
  ASSERT_EQ(plan["stages"].size(), 4u);
  std::set<std::string> holders;
  int next = 0;
  for (const json& stage : plan["stages"]) {
    EXPECT_EQ(stage["first_layer"], next);
    next = stage["last_layer"];
    ASSERT_EQ(stage["workers"].size(), 1u);
    holders.insert(stage["workers"][0].get<std::string>());
  }
  EXPECT_EQ(holders.size(), 3u) << "all workers are used";
  EXPECT_THAT(plan["why"].get<std::string>(),
              HasSubstr("Fewer workers than stages: "));
  EXPECT_EQ(option.Output()["stages"], plan["stages"]);
  EXPECT_EQ(fewer.Output()["stages"].size(), 2u);
  EXPECT_THAT(table.out.str(), HasSubstr("4 on 3 workers: some hold several"));
}

// As MakePlan, which is what 'job submit' shows: the same stages on the same
// workers.
TEST(PlanForAMesh, OfMoreStagesThanWorkersIsWhatTheJobGets) {
  for (const char* policy : {"dp", "equal", "min-cut"}) {
    PlanBed bed;
    JobSpec spec = LenetSpec(16);
    spec.pipeline.stages = 4;
    spec.pipeline.policy = policy;
    const auto model =
        DescribeModel(spec.model, spec.data.shape, spec.data.classes);
    std::vector<PlannerWorker> workers;
    for (const WorkerView& worker : *bed.measure.workers) {
      workers.push_back({WorkerId(worker.id), worker.name, worker.memory_bytes,
                         worker.machine_id});
    }
    const auto made =
        MakePlan(spec, *model, workers, *bed.measure.ListMeasurements(""));
    ASSERT_TRUE(made.ok()) << made.status();

    ASSERT_EQ(bed.RunMesh(spec, {.job_file = "job.yaml"}), kExitOk);

    const json plan = bed.Output();
    ASSERT_EQ(plan["stages"].size(), made->stages.size()) << policy;
    for (size_t s = 0; s < made->stages.size(); ++s) {
      const StageOfPlan& stage = made->stages[s];
      EXPECT_EQ(plan["stages"][s]["first_layer"], stage.layers.first);
      EXPECT_EQ(plan["stages"][s]["last_layer"], stage.layers.last);
      const auto holder = std::find_if(workers.begin(), workers.end(),
                                       [&](const PlannerWorker& worker) {
                                         return worker.worker == stage.worker;
                                       });
      EXPECT_EQ(plan["stages"][s]["workers"][0], holder->name) << policy;
    }
  }
}

TEST(PlanForAMesh, ComparesPoliciesWhereWorkersHoldSeveralStages) {
  PlanBed list, table(OutputFormat::kTable);
  JobSpec spec = LenetSpec(16);
  spec.pipeline.stages = 4;
  const PlanOptions options = {.job_file = "job.yaml", .compare = true};

  ASSERT_EQ(list.RunMesh(spec, options), kExitOk);
  ASSERT_EQ(table.RunMesh(spec, options), kExitOk);

  const json plans = list.Output();
  for (const json& run : plans["policies"]) {
    EXPECT_TRUE(run["refused"].is_null()) << run["policy"] << run["refused"];
    EXPECT_EQ(run["stages"].size(), 4u) << run["policy"];
  }
  EXPECT_THAT(table.out.str(), HasSubstr("4 on 3 workers: some hold several"));
}

TEST(PlanForAMesh, SharesWorkersByTheJobsOwnCutsToo) {
  PlanBed bed;
  JobSpec spec = LenetSpec(16);
  spec.pipeline.cuts = {1, 2, 3};
  spec.pipeline.stages = 4;

  ASSERT_EQ(bed.RunMesh(spec, {.job_file = "job.yaml"}), kExitOk);

  const json stages = bed.Output()["stages"];
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0]["workers"], json({"w1"}));
  EXPECT_EQ(stages[1]["workers"], json({"w1"}));
  EXPECT_EQ(stages[3]["workers"], json({"w3"}));
}

TEST(PlanForAMesh, RefusesSharedWorkersWhereAScheduleCannotHaveThem) {
  PlanBed pipedream, interleaved, layers;
  JobSpec spec = LenetSpec(16);
  spec.pipeline.stages = 4;
  spec.pipeline.schedule = "pipedream";
  EXPECT_EQ(pipedream.RunMesh(spec, {.job_file = "job.yaml"}), kExitUsage);
  spec.pipeline.schedule = "interleaved-1f1b";
  EXPECT_EQ(interleaved.RunMesh(spec, {.job_file = "job.yaml"}), kExitUsage);
  spec.pipeline.schedule = "1f1b";
  spec.pipeline.stages = 1000;
  EXPECT_EQ(layers.RunMesh(spec, {.job_file = "job.yaml"}), kExitUsage);

  EXPECT_THAT(pipedream.err.str(),
              HasSubstr("pipedream needs a worker for each stage, got 4 stages "
                        "on 3"));
  EXPECT_THAT(interleaved.err.str(), HasSubstr("'job submit --dry-run'"));
  EXPECT_THAT(layers.err.str(), HasSubstr("a layer cannot be cut"));
}

TEST(PlanForAMesh, SharedWorkersHoldAllTheirStagesInMemory) {
  PlanBed bed;
  std::vector<WorkerView> workers = IdleWorkers({"w1", "w2", "w3"});
  for (WorkerView& worker : workers) worker.memory_bytes = 1000;
  bed.measure.workers = workers;
  JobSpec spec = LenetSpec(16);
  spec.pipeline.stages = 4;

  EXPECT_EQ(bed.RunMesh(spec, {.job_file = "job.yaml"}), kExitUnplaceable);
}

TEST(PlanForAMesh, OfTrainingOnAMeshHasReplicasOnlyWhereAsked) {
  PlanBed trained, asked, inferred;
  const JobSpec spec = LenetSpec(16);

  ASSERT_EQ(trained.RunMesh(spec, {.job_file = "job.yaml"}), kExitOk);
  ASSERT_EQ(asked.RunMesh(spec, {.job_file = "job.yaml", .replicas = true}),
            kExitOk);
  ASSERT_EQ(inferred.RunMesh(spec, {.job_file = "job.yaml",
                                    .micro_batches = 0,
                                    .inference = true}),
            kExitOk);

  const auto most = [](const json& plan) {
    size_t replicas = 0;
    for (const json& stage : plan["stages"]) {
      replicas = std::max(replicas, stage["replicas"].get<size_t>());
    }
    return replicas;
  };
  EXPECT_EQ(most(trained.Output()), 1u);
  EXPECT_LE(asked.Output()["step_seconds"].get<double>(),
            trained.Output()["step_seconds"].get<double>());
  EXPECT_GT(most(inferred.Output()), 1u);
}

TEST(PlanForAMesh, OfAProfileHasReplicasAsEver) {
  PlanBed bed;
  PlanOptions both = Unlike();
  both.replicas = both.no_replicas = true;

  const auto question = AskForProfile(Graph(TwelveLayers()), Unlike());

  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_TRUE(question->inputs.problem.replicas);
  EXPECT_THAT(CheckPlanOptions(both).message(),
              HasSubstr("--replicas and --no-replicas"));
}

// A worker that has measured nothing of this model.
TEST(PlanForAMesh, OfPredictedTimesSaysForWhatItIsOptimal) {
  PlanBed known, predicted(OutputFormat::kTable), list;
  ASSERT_EQ(known.RunMesh(LenetSpec(16), {.model = "lenet"}), kExitOk);
  JobSpec other = LenetSpec(16);
  other.train.micro_batch = 64;
  // Measured seconds that no model of layers explains wholly.
  for (PlanBed* bed : {&predicted, &list}) {
    for (auto& [key, profile] : bed->measure.measurements->profiles) {
      double factor = 1;
      for (LayerMeasurement& layer : profile.layers) {
        layer.forward.wall *= factor;
        layer.backward.wall *= factor;
        factor = factor > 2 ? 0.7 : factor * 1.7;
      }
    }
  }
  ASSERT_EQ(predicted.RunMesh(other, {.job_file = "job.yaml"}), kExitOk);
  ASSERT_EQ(list.RunMesh(other, {.job_file = "job.yaml"}), kExitOk);

  EXPECT_TRUE(known.Output()["predicted"].is_null());
  EXPECT_THAT(known.Output()["why"].get<std::string>(),
              testing::EndsWith("The plan is proved to be the best."));
  EXPECT_THAT(predicted.out.str(),
              HasSubstr("proved optimal for predicted layer times only (90 % "
                        "between 0."));
  const json plan = list.Output();
  EXPECT_TRUE(plan["exact"]);
  EXPECT_LT(plan["predicted"]["low_factor"], 1);
  EXPECT_GT(plan["predicted"]["high_factor"], 1);
  EXPECT_THAT(plan["why"].get<std::string>(),
              HasSubstr("the best for layer times that are predicted"));
  EXPECT_THAT(plan["source"].get<std::string>(), HasSubstr("times as long)"));
}

}  // namespace
}  // namespace paceline
