#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/plan/plan.h"
#include "client/files/job_file.h"
#include "client/files/plan_file.h"
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
    return Code(PlanCommand(console, clock, *question, options));
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

// More stages than the mesh of a PlanBed has workers.
JobSpec FourStages() {
  JobSpec spec = LenetSpec(16);
  spec.pipeline.stages = 4;
  return spec;
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

// Changes the mesh as a line of a question says.
void Change(const std::string& line, PlanBed& bed) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  auto& profiles = bed.client.measurements->profiles;
  if (words[0] == "@workers") {
    bed.client.workers = IdleWorkers({words.begin() + 1, words.end()});
  } else if (words[0] == "@down") {
    bed.client.workers = absl::UnavailableError("down");
  } else if (words[0] == "@lost") {
    bed.client.workers->mutable_workers(0)->set_state(v1::WORKER_STATE_LOST);
  } else if (words[0] == "@memory") {
    for (size_t i = 1; i < words.size(); ++i) {
      bed.client.workers->mutable_workers(static_cast<int>(i - 1))
          ->mutable_registration()
          ->set_memory_bytes(std::stoll(words[i]));
    }
  } else if (words[0] == "@uneven") {
    // Seconds that no model of layers explains wholly.
    for (auto& [key, profile] : profiles) {
      double factor = 1;
      for (LayerMeasurement& layer : profile.layers) {
        layer.forward.wall *= factor;
        layer.backward.wall *= factor;
        factor = factor > 2 ? 0.7 : factor * 1.7;
      }
    }
  } else if (words[0] == "@heavy-front") {
    // Three machines alike, with slow links.  The first layer takes five times
    // as long as others, and has few weights.
    bed.client.AddProfile(ProfileOf(LenetSpec(16), "w3", 1e-3));
    for (v1::Worker& worker : *bed.client.workers->mutable_workers()) {
      v1::Registration& about = *worker.mutable_registration();
      about.set_address(absl::StrCat(about.name(), ":7401"));
    }
    for (auto& [key, profile] : profiles) {
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
  } else {
    ADD_FAILURE() << line;
  }
}

// The last line is a command line; those before it change the mesh.
TEST(Plan, AnswersACommandLine) {
  ExpectAnswers("client/plan", [](const std::string& question) {
    std::vector<std::string> lines = absl::StrSplit(question, '\n');
    ClientOptions options;
    if (const auto stop = ParseWords("plan " + lines.back(), &options)) {
      return stop->err;
    }
    PlanBed bed(options.output == "json" ? OutputFormat::kJson
                                         : OutputFormat::kTable);
    lines.pop_back();
    std::string graph = TwelveLayers();
    for (const std::string& line : lines) {
      if (line == "@large") {
        graph.replace(graph.find("parameter_size=0.0"), 18,
                      "parameter_size=1e9");
      } else {
        Change(line, bed);
      }
    }
    const auto job = ChangeJob(LenetSpec(16), options.plan.sets);
    const absl::Status checked =
        job.ok() ? CheckPlanOptions(options.plan) : job.status();
    const ExitCode code = !checked.ok() ? ReportError(bed.console, checked)
                          : options.plan.profile.empty()
                              ? bed.Run(job->spec, options.plan)
                              : bed.Run(Graph(graph), options.plan);
    // The last digits are rounding's, and a gap may be nothing else.
    return std::regex_replace(
        std::regex_replace(bed.Said(code), std::regex("(\\.[0-9]{6})[0-9]+"),
                           "$1"),
        std::regex("\"gap\": [0-9][^,]*"), "\"gap\": SOME");
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

  ASSERT_EQ(bed.Code(PipedreamPlanCommand(bed.console, bed.clock,
                                          Published("vgg16.txt"), options)),
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
    return bed.Code(PipedreamPlanCommand(bed.console, bed.clock,
                                         Published("vgg16.txt"), options));
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

}  // namespace
}  // namespace paceline
