#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/plan.h"
#include "client/files/profile_file.h"
#include "core/model/description.h"
#include "core/plan/machines.h"
#include "core/plan/plan.h"
#include "core/plan/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/plan_bed.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

TEST(Plan, OfTheKnownExampleIsSixAndNotThirty) {
  PlanBed bed;
  PlanOptions options = Unlike();
  options.no_replicas = true;

  const json plan = bed.Planned(Graph(TwelveLayers()), options);

  EXPECT_DOUBLE_EQ(plan["bottleneck_seconds"], 6);
  EXPECT_EQ(plan["policy"], "dp");
  EXPECT_EQ(plan["exact"], true);
  EXPECT_EQ(plan["micro_batches"], 0);
}

TEST(Plan, WithUnevenSharesAndFreeTransfersUsesAllDevices) {
  PlanBed bed;
  PlanOptions options = Unlike();
  options.bandwidth = "inf";

  const json plan = bed.Planned(Graph(TwelveLayers()), options);

  EXPECT_NEAR(plan["bottleneck_seconds"], 12 / 2.2, 1e-9);
}

TEST(Plan, HasTheDocumentedKeys) {
  PlanBed bed;

  const json plan = bed.Planned(Graph(TwelveLayers()), Unlike());

  for (const char* key :
       {"bottleneck_seconds", "step_seconds", "lower_bound_seconds", "gap",
        "policy", "exact", "stages", "why", "source", "left_out"}) {
    EXPECT_TRUE(plan.contains(key)) << key;
  }
  EXPECT_GE(plan["gap"], 0);
  EXPECT_LE(plan["lower_bound_seconds"], plan["step_seconds"]);
  int next = 0;
  for (const json& stage : plan["stages"]) {
    EXPECT_EQ(stage["first_layer"], next);
    next = stage["last_layer"];
    EXPECT_EQ(stage["replicas"], stage["workers"].size());
    EXPECT_EQ(stage["shares"].size(), stage["workers"].size());
    EXPECT_TRUE(stage["seconds"].is_number());
    EXPECT_TRUE(stage["memory_bytes"].is_number());
  }
  EXPECT_EQ(next, 12);
}

TEST(Plan, OfAStepCountsItsMicroBatches) {
  PlanBed bed;
  PlanOptions options = Unlike();
  options.no_replicas = true;
  options.speed = "1";
  options.stages = 4;
  options.micro_batches = 10;

  const json plan = bed.Planned(Graph(TwelveLayers()), options);

  // sum(t) + (M - 1) max(t) of four stages of three seconds.
  EXPECT_NEAR(plan["step_seconds"], 12 + 9 * 3, 1e-6);
}

TEST(Plan, ForInferenceLeavesTheBackwardPassOut) {
  PlanBed bed;
  PlanOptions options = Unlike();
  options.no_replicas = true;
  options.inference = true;

  const json plan = bed.Planned(Graph(TwelveLayers()), options);

  EXPECT_DOUBLE_EQ(plan["bottleneck_seconds"], 3);
}

TEST(Plan, IsATableThatSaysWhy) {
  PlanBed bed(OutputFormat::kTable);
  PlanOptions options = Unlike();
  options.no_replicas = true;

  ASSERT_EQ(bed.RunProfile(Graph(TwelveLayers()), options), kExitOk);

  EXPECT_THAT(bed.out.str(), HasSubstr("policy:"));
  EXPECT_THAT(bed.out.str(), HasSubstr("proved optimal"));
  EXPECT_THAT(bed.out.str(), HasSubstr("left out:"));
  EXPECT_THAT(bed.out.str(), HasSubstr("why:"));
}

TEST(Plan, ComparesAllPoliciesInOneTable) {
  PlanBed bed(OutputFormat::kTable);
  PlanOptions options = Unlike();
  options.compare = true;

  ASSERT_EQ(bed.RunProfile(Graph(TwelveLayers()), options), kExitOk);

  for (const std::string& policy : PolicyNames()) {
    EXPECT_THAT(bed.out.str(), HasSubstr(absl::StrCat("\n", policy)));
  }
  EXPECT_THAT(bed.out.str(), HasSubstr("PLANNED IN"));
}

TEST(Plan, ComparedAsAListSaysWhyAPolicyRefuses) {
  PlanBed bed;
  PlanOptions options = Unlike();
  options.compare = true;
  options.machines = "16";
  options.speed = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16";

  const json policies = bed.Planned(Graph(TwelveLayers()), options)["policies"];

  ASSERT_EQ(policies.size(), PolicyNames().size());
  for (const json& run : policies) {
    if (run["policy"] == "brute") {
      EXPECT_TRUE(run["refused"].is_string());
      EXPECT_FALSE(run.contains("step_seconds"));
    } else {
      EXPECT_TRUE(run["refused"].is_null()) << run["refused"];
      EXPECT_GT(run["step_seconds"], 0);
      EXPECT_TRUE(run["planning_seconds"].is_number());
    }
  }
}

TEST(Plan, ForTheMeshLeavesOutAWorkerThatIsTooSlow) {
  PlanBed bed;

  const json plan =
      bed.Planned(LenetSpec(16), {.model = "lenet", .no_replicas = true});

  EXPECT_EQ(plan["micro_batches"], 4);
  EXPECT_EQ(plan["left_out"], json({"w3"}));
  EXPECT_THAT(plan["source"].get<std::string>(), HasSubstr("measured on w1"));
  EXPECT_THAT(plan["model"].get<std::string>(), HasSubstr("lenet"));
  EXPECT_GT(plan["samples_per_second"], 0);
}

TEST(Plan, ForTheMeshSkipsWorkersThatAreGone) {
  PlanBed bed;
  v1::ListWorkersResponse workers = IdleWorkers({"w1", "w2"});
  workers.mutable_workers(0)->set_state(v1::WORKER_STATE_LOST);
  bed.measure.workers = workers;

  const json plan = bed.Planned(LenetSpec(16), {.model = "lenet"});

  EXPECT_EQ(plan["stages"][0]["workers"], json({"w2"}));
}

TEST(Plan, OfAJobFollowsItsCutsUnlessAPolicyIsAsked) {
  JobSpec spec = LenetSpec(16);
  spec.pipeline.cuts = {1};
  spec.pipeline.stages = 2;
  PlanBed cut, asked;

  ASSERT_EQ(cut.RunMesh(spec, {.job_file = "job.yaml"}), kExitOk);
  ASSERT_EQ(asked.RunMesh(spec, {.job_file = "job.yaml", .policy = "equal"}),
            kExitOk);

  EXPECT_EQ(cut.Output()["policy"], "cuts");
  EXPECT_EQ(cut.Output()["stages"][0]["last_layer"], 1);
  EXPECT_EQ(asked.Output()["policy"], "equal");
}

TEST(Plan, WithoutWorkersIsUnplaceable) {
  PlanBed bed;
  bed.measure.workers = v1::ListWorkersResponse();

  EXPECT_EQ(bed.RunMesh(LenetSpec(16), {.model = "lenet"}), kExitUnplaceable);

  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("no worker is attached"));
}

TEST(Plan, ForAnUnreachableCoordinatorIsUnreachable) {
  PlanBed bed;
  bed.measure.workers = absl::UnavailableError("down");

  EXPECT_EQ(bed.RunMesh(LenetSpec(16), {.model = "lenet"}), kExitUnreachable);
}

TEST(Plan, ThatNothingFitsSaysWhichLayerAndByHowMuch) {
  PlanBed bed;
  std::string text = TwelveLayers();
  text.replace(text.find("parameter_size=0.0"), 18, "parameter_size=1e9");
  PlanOptions options = Unlike();
  options.memory = "1e6";

  EXPECT_EQ(bed.RunProfile(Graph(text), options), kExitUnplaceable);

  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("node0"));
}

TEST(Plan, SavesWhatItFoundWithAllThatItIsMadeFrom) {
  PlanBed bed;
  const std::string path = testing::TempDir() + "/saved_plan.json";

  const json printed =
      bed.Planned(LenetSpec(16), {.model = "lenet", .save = path});

  const auto plan = ReadPlanFile(path);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->facts.size(), 3u);
  EXPECT_EQ(plan->micro_batch, 16);
  EXPECT_EQ(plan->schedule, "1f1b");
  EXPECT_EQ(plan->policy, "dp");
  EXPECT_EQ(plan->placement.size(), printed["stages"].size());
}

TEST(Plan, ThatCannotBeSavedFailsWithoutOutput) {
  PlanBed bed;

  EXPECT_EQ(bed.RunMesh(LenetSpec(16),
                        {.model = "lenet", .save = "/nonexistent/plan.json"}),
            kExitUsage);

  EXPECT_EQ(bed.out.str(), "");
}

TEST(PlanQuestion, RefusesWhatIsWrongWithTheMachinesOrTheProblem) {
  struct Case {
    const char* what;
    void (*change)(PlanOptions&);
    const char* says;
  };
  const Case cases[] = {
      {"no machines", [](PlanOptions& o) { o.machines = ""; }, "--machines"},
      {"not a number", [](PlanOptions& o) { o.machines = "fourxfour"; },
       "fourxfour"},
      {"none", [](PlanOptions& o) { o.machines = "0"; }, "at least 1"},
      {"a missing bandwidth", [](PlanOptions& o) { o.machines = "2x2"; },
       "1 bandwidths for 2 levels"},
      {"a bandwidth of 0", [](PlanOptions& o) { o.bandwidth = "0"; },
       "bandwidth of 0"},
      {"too few speeds", [](PlanOptions& o) { o.speed = "1,2"; },
       "2 numbers, there are 4"},
      {"a speed that is none", [](PlanOptions& o) { o.speed = "1,x,1,1"; },
       "'x' is no number"},
      {"a latency too much", [](PlanOptions& o) { o.latency = "1e-3,1e-3"; },
       "--latency has 2"},
      {"two memories", [](PlanOptions& o) { o.memory = "1e9,2e9"; },
       "--memory 1e9,2e9"},
      {"an unknown schedule", [](PlanOptions& o) { o.schedule = "gipe"; },
       "did you mean 'gpipe'"},
      {"a speed of 0", [](PlanOptions& o) { o.speed = "0"; }, "speed is 0"},
      {"a negative speed", [](PlanOptions& o) { o.speed = "-1"; }, "speed"},
      {"a latency that is not finite",
       [](PlanOptions& o) { o.latency = "nan"; }, "latency_seconds"},
      {"negative memory", [](PlanOptions& o) { o.memory = "-1"; }, "memory"},
      {"more stages than devices", [](PlanOptions& o) { o.stages = 5; },
       "5 stages on 4 devices"},
      {"more micro-batches than 2^20",
       [](PlanOptions& o) { o.micro_batches = (1 << 20) + 1; }, "1048576"},
      {"an unknown policy", [](PlanOptions& o) { o.policy = "dpp"; },
       "did you mean"}};
  for (const Case& each : cases) {
    PlanBed bed;
    PlanOptions options = Unlike();
    each.change(options);

    EXPECT_EQ(bed.RunProfile(Graph(TwelveLayers()), options), kExitUsage)
        << each.what;
    EXPECT_EQ(bed.out.str(), "") << each.what;
    EXPECT_THAT(bed.err.str(), HasSubstr(each.says)) << each.what;
  }
}

TEST(PlanOptions, AreOneSourceAndWhatGoesWithIt) {
  const std::vector<std::pair<PlanOptions, std::string>> wrong = {
      {{}, "nothing to plan"},
      {{.model = "lenet", .job_file = "f"}, "more than one"},
      {{.job_file = "f", .batch = 16}, "--batch goes with --model"},
      {{.model = "lenet", .machines = "4"}, "--machines goes with --profile"},
      {{.profile = "f", .sets = {"a=1"}}, "--set"},
      {{.profile = "f", .machines = "4"}, "--bandwidth"},
      {{.profile = "f", .speed = "1"}, "--speed needs --machines"},
      {{.model = "lenet", .policy = "dp", .compare = true}, "--policy"},
      {{.model = "lenet", .count_transfers = true}, "--count-transfers"},
      {{.model = "lenet", .cost_model = "pipedream"}, "--machines"},
      {{.profile = "f",
        .machines = "4",
        .bandwidth = "1",
        .compare = true,
        .cost_model = "pipedream"},
       "--compare goes with --cost-model paceline"}};
  for (const auto& [options, says] : wrong) {
    const absl::Status status = CheckPlanOptions(options);

    EXPECT_EQ(ExitCodeFor(status), kExitUsage) << says;
    EXPECT_THAT(status.message(), HasSubstr(says));
  }
  EXPECT_TRUE(CheckPlanOptions({.model = "lenet", .batch = 16}).ok());
  EXPECT_TRUE(CheckPlanOptions(Unlike()).ok());
}

// --- pipedream --------------------------------------------------------------

PlanOptions Pipedream(const std::string& machines,
                      const std::string& bandwidth) {
  PlanOptions options;
  options.profile = "vgg16.txt";
  options.machines = machines;
  options.bandwidth = bandwidth;
  options.cost_model = "pipedream";
  return options;
}

ProfileSource Published(const std::string& name) {
  const auto source = ReadProfileFile(
      absl::StrCat(PACELINE_SOURCE_DIR, "/tests/data/pipedream/", name));
  EXPECT_TRUE(source.ok()) << source.status();
  return *source;
}

TEST(PipedreamPlan, AnswersAsTheReleasedOptimizerDoes) {
  CommandBed bed(OutputFormat::kJson);
  PlanOptions options = Pipedream("16", "1.25e9");
  options.count_transfers = true;

  ASSERT_EQ(PipedreamPlanCommand(bed.console, bed.clock, Published("vgg16.txt"),
                                 options),
            kExitOk);

  const json plan = bed.Output();
  EXPECT_EQ(plan["step_seconds"], plan["bottleneck_seconds"]);
  // 12.27 times one machine, the released optimizer says.
  EXPECT_GE(plan["speed_up"], 12.27 * 0.999);
  EXPECT_EQ(plan["exact"], true);
  int next = 0;
  for (const json& stage : plan["stages"]) {
    EXPECT_EQ(stage["first_layer"], next);
    next = stage["last_layer"];
    EXPECT_EQ(stage["replicas"], stage["workers"].size());
    EXPECT_EQ(stage["nodes"].size(), next - stage["first_layer"].get<size_t>());
  }
  EXPECT_THAT(plan["replication"].get<std::string>(), HasSubstr("-"));
}

TEST(PipedreamPlan, IsATable) {
  CommandBed bed;

  ASSERT_EQ(PipedreamPlanCommand(bed.console, bed.clock, Published("vgg16.txt"),
                                 Pipedream("4x4", "1e10,1.25e9")),
            kExitOk);

  EXPECT_THAT(bed.out.str(), HasSubstr("x one device"));
}

TEST(PipedreamPlan, ThatNothingFitsIsUnplaceable) {
  CommandBed bed(OutputFormat::kJson);
  PlanOptions options = Pipedream("4x4", "1e10,1.25e9");
  options.memory = "1000";

  EXPECT_EQ(PipedreamPlanCommand(bed.console, bed.clock, Published("vgg16.txt"),
                                 options),
            kExitUnplaceable);

  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("node"));
}

TEST(PipedreamPlan, TakesChainsToo) {
  const GraphProfile graph =
      ChainGraph({{.name = "a", .forward_seconds = 1}, {.name = "b"}});

  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.nodes[0].forward_seconds, 1);
  EXPECT_EQ(graph.edges, (std::vector<std::pair<int, int>>{{0, 1}}));
}

// A mesh has more than any machines have: stages that share workers, replicas,
// times that are predicted.

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
    for (const v1::Worker& worker : bed.measure.workers->workers()) {
      const v1::Registration& about = worker.registration();
      workers.push_back({WorkerId(worker.id()), about.name(),
                         about.memory_bytes(), about.machine_id()});
    }
    const auto made =
        MakePlan(spec, *model, workers, *bed.measure.ListMeasurements(""));
    ASSERT_TRUE(made.ok()) << made.status();

    const json plan = bed.Planned(spec, {.job_file = "job.yaml"});

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

  const json stages = bed.Planned(spec, {.job_file = "job.yaml"})["stages"];

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
  v1::ListWorkersResponse workers = IdleWorkers({"w1", "w2", "w3"});
  for (v1::Worker& worker : *workers.mutable_workers()) {
    worker.mutable_registration()->set_memory_bytes(1000);
  }
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
