#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/plan/plan.h"
#include "client/files/job_file.h"
#include "client/files/profile_file.h"
#include "core/model/description.h"
#include "core/plan/machines.h"
#include "core/plan/plan.h"
#include "core/plan/search/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/command_line.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Twelve layers of one second, two forward and backward halves.
std::string TwelveLayers() {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    absl::StrAppend(&text, "node", i, " -- Linear -- ",
                    "forward_compute_time=500.0, backward_compute_time=500.0, "
                    "activation_size=0.0, parameter_size=0.0\n");
  }
  for (int i = 0; i < 11; ++i) {
    absl::StrAppend(&text, "\tnode", i, " -- node", i + 1, "\n");
  }
  return text;
}

ProfileSource Graph(const std::string& text) {
  return ParseProfileFile("graph.txt", text).value();
}

// The example of the released planners: two devices of ten seconds a layer, two
// of one.
PlanOptions Unlike() {
  PlanOptions options;
  options.profile = "graph.txt";
  options.machines = "4";
  options.bandwidth = "1e9";
  options.speed = "0.1,0.1,1,1";
  return options;
}

struct PlanBed : CommandBed {
  explicit PlanBed(OutputFormat format = OutputFormat::kJson)
      : CommandBed(format) {
    client.workers = IdleWorkers({"w1", "w2", "w3"});
    for (const char* worker : {"w1", "w2"}) {
      client.AddProfile(ProfileOf(LenetSpec(16), worker, 1e-3));
    }
    client.AddProfile(ProfileOf(LenetSpec(16), "w3", 1e-1));
  }

  ExitCode Run(const ProfileSource& source, const PlanOptions& options) {
    return Finish(AskForProfile(source, options), options);
  }
  ExitCode Run(const JobSpec& spec, const PlanOptions& options) {
    return Finish(AskForMesh(client, spec, options), options);
  }

  // The document of a plan that there must be.
  template <typename Source>
  json Planned(const Source& source, const PlanOptions& options) {
    EXPECT_EQ(Run(source, options), kExitOk) << err.str();
    return Output();
  }

 private:
  ExitCode Finish(const absl::StatusOr<PlanQuestion>& question,
                  const PlanOptions& options) {
    if (!question.ok()) return ReportSubmitError(console, question.status());
    return PlanCommand(console, clock, *question, options);
  }
};

// The layers of the stages follow each other; returns how many there are.
int LayersIn(const json& stages) {
  int next = 0;
  for (const json& stage : stages) {
    EXPECT_EQ(stage["first_layer"], next);
    next = stage["last_layer"];
    EXPECT_EQ(stage["replicas"], stage["workers"].size());
    EXPECT_EQ(stage["shares"].size(), stage["workers"].size());
    EXPECT_TRUE(stage["seconds"].is_number());
    EXPECT_TRUE(stage["memory_bytes"].is_number());
  }
  return next;
}

// The plan of a job on the mesh of a PlanBed.
json Planned(const JobSpec& spec,
             const PlanOptions& options = {.job_file = "job.yaml"}) {
  return PlanBed().Planned(spec, options);
}

// More stages than the mesh of a PlanBed has workers.
JobSpec FourStages() {
  JobSpec spec = LenetSpec(16);
  spec.pipeline.stages = 4;
  return spec;
}

TEST(Plan, CostsWhatTheKnownExamplesCost) {
  const struct {
    const char* what;
    void (*change)(PlanOptions&);
    const char* key;
    double seconds;
  } kCases[] = {
      {"six and not thirty", [](PlanOptions& o) { o.no_replicas = true; },
       "bottleneck_seconds", 6},
      {"uneven shares and free transfers use all devices",
       [](PlanOptions& o) { o.bandwidth = "inf"; }, "bottleneck_seconds",
       12 / 2.2},
      {"inference leaves the backward pass out",
       [](PlanOptions& o) { o.no_replicas = o.inference = true; },
       "bottleneck_seconds", 3},
      // sum(t) + (M - 1) max(t) of four stages of three seconds.
      {"a step counts its micro-batches",
       [](PlanOptions& o) {
         o.no_replicas = true;
         o.speed = "1";
         o.stages = 4;
         o.micro_batches = 10;
       },
       "step_seconds", 12 + 9 * 3}};
  for (const auto& test : kCases) {
    PlanBed bed;
    PlanOptions options = Unlike();
    test.change(options);

    const json plan = bed.Planned(Graph(TwelveLayers()), options);

    EXPECT_NEAR(plan[test.key], test.seconds, 1e-6) << test.what;
    EXPECT_EQ(plan["policy"], "optimal");
    EXPECT_EQ(plan["exact"], true);
  }
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
  EXPECT_EQ(LayersIn(plan["stages"]), 12);
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

TEST(Plan, ForTheMeshComparesOneWorkerAPipelineAndAGroup) {
  PlanBed bed, table(OutputFormat::kTable);

  const json ways = bed.Planned(LenetSpec(16), {.model = "lenet"})["ways"];
  ASSERT_EQ(table.Run(LenetSpec(16), {.model = "lenet"}), kExitOk);

  ASSERT_EQ(ways.size(), 4u);
  const char* const names[] = {"one worker", "pipeline", "group", "both"};
  for (size_t i = 0; i < ways.size(); ++i) {
    EXPECT_EQ(ways[i]["name"], names[i]);
    EXPECT_GT(ways[i]["step_seconds"], 0) << ways[i];
    EXPECT_THAT(table.out.str(), HasSubstr(absl::StrCat("\n", names[i])));
  }
  // 4 micro-batches, 8 layers, 1 ms forward and 2 ms backward each.
  EXPECT_NEAR(ways[0]["step_seconds"], 0.096, 1e-3);
  EXPECT_THAT(ways[2]["why"].get<std::string>(), HasSubstr("shards: "));
}

// Three machines alike.  The first five of eight layers take three quarters of
// the time, and have few weights; the links are slow.
json WaysOfAHeavyFront(const std::string& replicate) {
  JobSpec spec = LenetSpec(16);
  spec.train.batch = 6 * spec.train.micro_batch;
  spec.pipeline.replicate = replicate;
  PlanBed bed;
  bed.client.AddProfile(ProfileOf(LenetSpec(16), "w3", 1e-3));
  for (v1::Worker& worker : *bed.client.workers->mutable_workers()) {
    v1::Registration& about = *worker.mutable_registration();
    about.set_address(absl::StrCat(about.name(), ":7401"));
  }
  for (auto& [key, profile] : bed.client.measurements->profiles) {
    for (MeasuredSeconds* pass :
         {&profile.layers[0].forward, &profile.layers[0].backward}) {
      pass->wall *= 5;
      pass->cpu *= 5;
    }
  }
  for (const char* from : {"w1", "w2", "w3"}) {
    for (const char* to : {"w1", "w2", "w3"}) {
      if (from == to) continue;
      bed.client.measurements->links[{from, to}] = {from, to, 2e7, 1e-4};
    }
  }
  return bed.Planned(spec, {.job_file = "job.yaml"})["ways"];
}

TEST(Plan, ForTheMeshSaysHowToAskForReplicasWhereTheyAreFastest) {
  const json ways = WaysOfAHeavyFront("auto");
  const json allowed = WaysOfAHeavyFront("allowed");

  EXPECT_LT(ways[3]["step_seconds"], ways[1]["step_seconds"]);
  EXPECT_LT(ways[3]["step_seconds"], ways[2]["step_seconds"]);
  EXPECT_THAT(ways[3]["why"].get<std::string>(),
              Says("2 stages, 2-1 replicas", "pipeline.replicate=allowed"));
  for (const int way : {1, 3}) {
    EXPECT_EQ(allowed[way]["step_seconds"], ways[way]["step_seconds"]);
  }
}

TEST(Plan, ForTheMeshHasOneAnswerAndNamesTheOtherTimes) {
  PlanBed bed, table(OutputFormat::kTable);

  const json plan = bed.Planned(LenetSpec(16), {.model = "lenet"});
  ASSERT_EQ(table.Run(LenetSpec(16), {.model = "lenet"}), kExitOk);

  const double expected = plan["expected_step_seconds"];
  EXPECT_EQ(expected, plan["ways"][1]["step_seconds"]);
  EXPECT_NE(expected, plan["step_seconds"]);
  EXPECT_THAT(
      table.out.str(),
      Says(absl::StrCat("\nstep:         ", HumanSeconds(expected), " ("),
           absl::StrCat("\nby formula:   ", HumanSeconds(plan["step_seconds"]),
                        ", by which policies choose\n"),
           " a micro-batch\n", " by formula, gap "));
}

TEST(Plan, OfAGroupIsADocumentToo) {
  JobSpec spec = LenetSpec(16);
  spec.aggregation.mode = "rolling";

  const json plan = Planned(spec);

  EXPECT_THAT(plan, Includes(R"({"policy": "group", "gap": null})"));
  EXPECT_EQ(plan["stages"][0]["workers"], json({"w1", "w2", "w3"}));
  EXPECT_EQ(plan["step_seconds"], plan["ways"][2]["step_seconds"]);
  EXPECT_EQ(plan["expected_step_seconds"], plan["step_seconds"]);
}

TEST(Plan, ForTheMeshSkipsWorkersThatAreGone) {
  PlanBed bed;
  v1::ListWorkersResponse workers = IdleWorkers({"w1", "w2"});
  workers.mutable_workers(0)->set_state(v1::WORKER_STATE_LOST);
  bed.client.workers = workers;

  const json plan = bed.Planned(LenetSpec(16), {.model = "lenet"});

  EXPECT_EQ(plan["stages"][0]["workers"], json({"w2"}));
}

TEST(Plan, WithoutWorkersOrACoordinatorEndsWithItsExitCode) {
  PlanBed none, down;
  none.client.workers = v1::ListWorkersResponse();
  down.client.workers = absl::UnavailableError("down");

  EXPECT_EQ(none.Run(LenetSpec(16), {.model = "lenet"}), kExitUnplaceable);
  EXPECT_EQ(down.Run(LenetSpec(16), {.model = "lenet"}), kExitUnreachable);

  EXPECT_EQ(none.out.str(), "");
  EXPECT_THAT(none.err.str(), HasSubstr("no worker is attached"));
}

TEST(Plan, ThatNothingFitsSaysWhichLayerAndByHowMuch) {
  PlanBed bed;
  std::string text = TwelveLayers();
  text.replace(text.find("parameter_size=0.0"), 18, "parameter_size=1e9");
  PlanOptions options = Unlike();
  options.memory = "1e6";

  EXPECT_EQ(bed.Run(Graph(text), options), kExitUnplaceable);

  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("node0"));
}

TEST(Plan, SavesWhatItFoundWithAllThatItIsMadeFrom) {
  PlanBed bed;
  const std::string path = testing::TempDir() + "/saved_plan.json";

  const json printed =
      bed.Planned(LenetSpec(16), {.model = "lenet", .save = path});

  const auto plan = ReadPlanFile(path).value();
  EXPECT_EQ(plan.facts.size(), 3u);
  EXPECT_EQ(plan.micro_batch, 16);
  EXPECT_EQ(plan.schedule, "1f1b");
  EXPECT_EQ(plan.policy, "optimal");
  EXPECT_EQ(plan.placement.size(), printed["stages"].size());
  PlanBed unwritable;
  EXPECT_EQ(unwritable.Run(LenetSpec(16),
                           {.model = "lenet", .save = "/nonexistent/p.json"}),
            kExitUsage);
  EXPECT_EQ(unwritable.out.str(), "");
}

// The parser refuses these before.
TEST(PlanQuestion, RefusesWhatNoCommandLineAsks) {
  const std::pair<void (*)(PlanOptions&), const char*> kCases[] = {
      {[](PlanOptions& o) { o.micro_batches = (1 << 20) + 1; }, "1048576"},
      {[](PlanOptions& o) { o.schedule = "gipe"; }, "did you mean 'gpipe'"},
      {[](PlanOptions& o) { o.policy = "optimall"; }, "did you mean"}};
  for (const auto& [change, says] : kCases) {
    PlanBed bed;
    PlanOptions options = Unlike();
    change(options);

    EXPECT_EQ(bed.Run(Graph(TwelveLayers()), options), kExitUsage) << says;
    EXPECT_EQ(bed.out.str(), "");
    EXPECT_THAT(bed.err.str(), HasSubstr(says));
  }
}

TEST(Plan, AnswersACommandLine) {
  ExpectAnswers("client/plan", [](const std::string& words) {
    ClientOptions options;
    if (const auto stop = ParseWords("plan " + words, &options)) {
      return stop->err;
    }
    PlanBed bed(OutputFormat::kTable);
    const auto job = ChangeJob(LenetSpec(16), options.plan.sets);
    const absl::Status checked =
        job.ok() ? CheckPlanOptions(options.plan) : job.status();
    return bed.Said(!checked.ok() ? ReportError(bed.console, checked)
                    : options.plan.profile.empty()
                        ? bed.Run(job->spec, options.plan)
                        : bed.Run(Graph(TwelveLayers()), options.plan));
  });
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
  return ReadProfileFile(
             absl::StrCat(PACELINE_SOURCE_DIR, "/tests/data/pipedream/", name))
      .value();
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
  int nodes = 0;
  for (const json& stage : plan["stages"]) {
    nodes += static_cast<int>(stage["nodes"].size());
  }
  EXPECT_EQ(LayersIn(plan["stages"]), nodes);
  EXPECT_THAT(plan["replication"].get<std::string>(), HasSubstr("-"));
}

TEST(PipedreamPlan, IsATableOrUnplaceableWhereNothingFits) {
  CommandBed table, unplaceable(OutputFormat::kJson);
  PlanOptions options = Pipedream("4x4", "1e10,1.25e9");
  const auto run = [&options](CommandBed& bed) {
    return PipedreamPlanCommand(bed.console, bed.clock, Published("vgg16.txt"),
                                options);
  };

  EXPECT_EQ(run(table), kExitOk);
  options.memory = "1000";
  EXPECT_EQ(run(unplaceable), kExitUnplaceable);

  EXPECT_THAT(table.out.str(), HasSubstr("x one device"));
  EXPECT_EQ(unplaceable.out.str(), "");
  EXPECT_THAT(unplaceable.err.str(), HasSubstr("node"));
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

// As MakePlan, which is what 'job submit' shows: the same stages on the same
// workers, of which each has so much memory, for the same reason.
//   returns  who is left out
json ExpectWhatTheJobGets(const JobSpec& spec,
                          const std::vector<int64_t>& memory_bytes) {
  PlanBed bed;
  const auto model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes);
  std::vector<PlannerWorker> workers;
  for (v1::Worker& worker : *bed.client.workers->mutable_workers()) {
    v1::Registration& about = *worker.mutable_registration();
    about.set_memory_bytes(memory_bytes[workers.size()]);
    workers.push_back({WorkerId(worker.id()), about.name(),
                       about.memory_bytes(), about.machine_id()});
  }
  const auto made =
      MakePlan(spec, *model, workers, *bed.client.ListMeasurements("")).value();

  const json plan = bed.Planned(spec, {.job_file = "job.yaml"});

  EXPECT_EQ(plan["why"], made.why);
  EXPECT_EQ(plan["stages"].size(), made.stages.size()) << made.why;
  for (size_t s = 0; s < plan["stages"].size(); ++s) {
    const StageOfPlan& stage = made.stages[s];
    EXPECT_EQ(plan["stages"][s]["first_layer"], stage.layers.first);
    EXPECT_EQ(plan["stages"][s]["last_layer"], stage.layers.last);
    EXPECT_EQ(plan["stages"][s]["memory_bytes"], BytesOn(made, stage.worker));
    const auto holder = std::find_if(workers.begin(), workers.end(),
                                     [&](const PlannerWorker& worker) {
                                       return worker.worker == stage.worker;
                                     });
    EXPECT_EQ(plan["stages"][s]["workers"], json({holder->name})) << made.why;
  }
  return plan["left_out"];
}

constexpr int64_t kMuch = int64_t{1} << 30;
constexpr int64_t kNothing = 1000;  // that a stage fits in

TEST(PlanForAMesh, OfMoreStagesThanWorkersIsWhatTheJobGets) {
  for (const char* policy : {"optimal", "equal", "min-cut"}) {
    JobSpec spec = FourStages();
    spec.pipeline.policy = policy;

    ExpectWhatTheJobGets(spec, {kMuch, kMuch, kMuch});
  }
}

TEST(PlanForAMesh, WithoutAMachineThatHoldsNothingIsWhatTheJobGets) {
  for (const char* policy : {"optimal", "equal", "min-cut"}) {
    for (const int stages : {0, 2, 3, 4}) {
      JobSpec spec = LenetSpec(16);
      spec.pipeline.policy = policy;
      spec.pipeline.stages = stages;

      EXPECT_EQ(ExpectWhatTheJobGets(spec, {kNothing, kMuch, kNothing}),
                json({"w1", "w3"}));
    }
  }
}

TEST(PlanForAMesh, OfTheJobsOwnCutsIsWhatTheJobGets) {
  JobSpec spec = LenetSpec(16);
  spec.pipeline.cuts = {7};
  EXPECT_EQ(ExpectWhatTheJobGets(spec, {kNothing, 40000, kMuch}), json({"w1"}));
  EXPECT_EQ(ExpectWhatTheJobGets(spec, {kNothing, kNothing, kMuch}),
            json({"w1", "w2"}));

  spec.pipeline.workers = {"w3", "w1"};
  EXPECT_EQ(ExpectWhatTheJobGets(spec, {kMuch, kMuch, kMuch}), json({"w2"}));
}

TEST(PlanForAMesh, CountsAReserveOnEachMachine) {
  PlanBed full;
  PlanOptions options = {.model = "lenet"};
  const json plan = PlanBed().Planned(LenetSpec(16), options);
  options.reserve_bytes = 1 << 20;
  const json kept = PlanBed().Planned(LenetSpec(16), options);
  options.reserve_bytes = 1e12;

  EXPECT_EQ(full.Run(LenetSpec(16), options), kExitUnplaceable);

  EXPECT_EQ(kept["stages"][0]["memory_bytes"].get<double>(),
            plan["stages"][0]["memory_bytes"].get<double>() + (1 << 20));
}

TEST(PlanForAMesh, SaysThatAMachineHoldsAllStages) {
  PlanBed bed(OutputFormat::kTable);
  for (v1::Worker& worker : *bed.client.workers->mutable_workers()) {
    const bool large = worker.registration().name() == "w2";
    worker.mutable_registration()->set_memory_bytes(large ? kMuch : kNothing);
  }

  ASSERT_EQ(bed.Run(LenetSpec(16), {.model = "lenet", .stages = 2}), kExitOk);

  EXPECT_THAT(bed.out.str(), Says("2 on 1 worker, which holds them all",
                                  "left out:", "w1 w3", "planned without"));
}

TEST(PlanForAMesh, RefusesSharedWorkersWhereTheyCannotBe) {
  const struct {
    const char* schedule;
    int stages;
    int64_t memory_bytes;
    ExitCode code;
    const char* says;
  } kCases[] = {
      {"pipedream", 4, 1 << 30, kExitUsage, "each stage, got 4 stages on 3"},
      {"interleaved-1f1b", 4, 1 << 30, kExitUsage, "'job submit --dry-run'"},
      {"1f1b", 1000, 1 << 30, kExitUsage, "a layer cannot be cut"},
      {"1f1b", 4, 1000, kExitUnplaceable, ""},
  };
  for (const auto& test : kCases) {
    PlanBed bed;
    for (v1::Worker& worker : *bed.client.workers->mutable_workers()) {
      worker.mutable_registration()->set_memory_bytes(test.memory_bytes);
    }
    JobSpec spec = FourStages();
    spec.pipeline.schedule = test.schedule;
    spec.pipeline.stages = test.stages;

    EXPECT_EQ(bed.Run(spec, {.job_file = "job.yaml"}), test.code) << test.says;
    EXPECT_THAT(bed.err.str(), HasSubstr(test.says));
  }
}

TEST(PlanForAMesh, OfTrainingOnAMeshHasReplicasOnlyWhereAsked) {
  const JobSpec spec = LenetSpec(16);
  const auto most = [](const json& plan) {
    size_t replicas = 0;
    for (const json& stage : plan["stages"]) {
      replicas = std::max(replicas, stage["replicas"].get<size_t>());
    }
    return replicas;
  };

  const json trained = Planned(spec);
  const json asked = Planned(spec, {.job_file = "job.yaml", .replicas = true});
  const json inferred =
      Planned(spec, {.job_file = "f", .micro_batches = 0, .inference = true});
  const auto profile = AskForProfile(Graph(TwelveLayers()), Unlike()).value();

  EXPECT_EQ(most(trained), 1u);
  EXPECT_LE(asked["step_seconds"].get<double>(),
            trained["step_seconds"].get<double>());
  EXPECT_GT(most(inferred), 1u);
  EXPECT_TRUE(profile.inputs.problem.replicas);
}

// A worker that has measured nothing of this model.
TEST(PlanForAMesh, OfPredictedTimesSaysForWhatItIsOptimal) {
  PlanBed known, predicted(OutputFormat::kTable), list;
  ASSERT_EQ(known.Run(LenetSpec(16), {.model = "lenet"}), kExitOk);
  JobSpec other = LenetSpec(16);
  other.train.micro_batch = 64;
  // Measured seconds that no model of layers explains wholly.
  for (PlanBed* bed : {&predicted, &list}) {
    for (auto& [key, profile] : bed->client.measurements->profiles) {
      double factor = 1;
      for (LayerMeasurement& layer : profile.layers) {
        layer.forward.wall *= factor;
        layer.backward.wall *= factor;
        factor = factor > 2 ? 0.7 : factor * 1.7;
      }
    }
  }
  ASSERT_EQ(predicted.Run(other, {.job_file = "job.yaml"}), kExitOk);
  ASSERT_EQ(list.Run(other, {.job_file = "job.yaml"}), kExitOk);

  EXPECT_TRUE(known.Output()["predicted"].is_null());
  EXPECT_THAT(known.Output()["why"].get<std::string>(),
              HasSubstr("The plan is proved to be the best; layer times "));
  EXPECT_THAT(predicted.out.str(),
              HasSubstr("proved optimal for predicted layer times only (90 % "
                        "between 0."));
  const json plan = list.Output();
  EXPECT_TRUE(plan["exact"]);
  EXPECT_LT(plan["predicted"]["low_factor"], 1);
  EXPECT_GT(plan["predicted"]["high_factor"], 1);
  EXPECT_THAT(plan["why"].get<std::string>(),
              HasSubstr("the best by the predicted times"));
  EXPECT_THAT(plan["source"].get<std::string>(), HasSubstr("times as long)"));
}

}  // namespace
}  // namespace paceline
