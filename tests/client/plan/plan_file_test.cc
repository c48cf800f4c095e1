#include "client/files/plan_file.h"

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/job/job.h"
#include "client/commands/plan/plan.h"
#include "client/files/whole_file.h"
#include "client/values/document.h"
#include "core/job/job_check.h"
#include "core/model/catalog.h"
#include "core/plan/search/policy.h"
#include "core/simulate/simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// lenet on two workers, as 'plan --model lenet --no-replicas --save' has it.
PlanFile LenetPlan() {
  FakeControlClient client;
  client.workers = IdleWorkers({"w1", "w2"});
  for (const char* worker : {"w1", "w2"}) {
    DeviceProfile profile = ProfileOf(LenetSpec(16), worker, 1e-3);
    profile.cpu_share = 0.4;
    profile.quota_period_seconds = 0.005;
    client.AddProfile(profile);
  }
  const auto question =
      AskForMesh(client, LenetSpec(16),
                 {.model = "lenet", .stages = 2, .no_replicas = true})
          .value();
  const auto answer = SolvePlan("optimal", question.inputs.problem, {}).value();
  PlanFile plan = {
      question.inputs, answer.placement, "gpipe", question.model, 16,
      "optimal",       "because"};
  plan.source = "measured";
  return plan;
}

// The plan as it comes back from its file.
PlanFile Reread(const PlanFile& plan) {
  return ParsePlanFile("p.json", PlanFileText(plan)).value();
}

json PlanJson(const PlanFile& plan) { return json::parse(PlanFileText(plan)); }

TEST(PlanFile, ReadsBackAsItWasFreeLinksTooOrIsNotWritten) {
  const std::string path = testing::TempDir() + "/whole_plan.json";
  PlanFile plan = LenetPlan();
  plan.problem.links[0][1].bytes_per_second =
      std::numeric_limits<double>::infinity();

  ASSERT_TRUE(WriteWholeFile(path, PlanFileText(plan)).ok());

  EXPECT_TRUE(ReadPlanFile(path)->problem == plan.problem);
  EXPECT_EQ(PlanFileText(ReadPlanFile(path).value()), PlanFileText(plan));
  EXPECT_EQ(ExitCodeFor(WriteWholeFile("/nonexistent/plan.json", "")),
            kExitUsage);
}

TEST(PlanFile, RefusesDeepNestingBeforeItIsBuilt) {
  const std::string deep(1 << 20, '[');

  EXPECT_THAT(ParsePlanFile("p.json", deep).status().message(),
              HasSubstr("nested deeper than"));
}

TEST(PlanFile, ItsTextCutAnywhereIsRefused) {
  const std::string text = PlanFileText(LenetPlan());
  for (size_t at = 0; at + 2 < text.size(); at += 97) {
    EXPECT_FALSE(ParsePlanFile("p.json", text.substr(0, at)).ok()) << at;
  }
}

// --- followers --------------------------------------------------------------

TEST(FollowPlan, CutsTheJobAsThePlanDoesOnItsWorkers) {
  PlanFile plan = LenetPlan();
  plan.placement[0].devices = {1};
  plan.placement[1].devices = {0};
  JobSpec spec = LenetSpec(16);

  EXPECT_EQ(*FollowPlan("p.json", plan, spec), "");

  EXPECT_EQ(spec.pipeline.stages, 2);
  EXPECT_THAT(spec.pipeline.cuts, ElementsAre(plan.placement[1].layers.first));
  EXPECT_THAT(spec.pipeline.workers, ElementsAre("w2", "w1"));
  EXPECT_EQ(spec.pipeline.schedule, "1f1b");
}

TEST(FollowPlan, NamesTheSettingsThatItOverrules) {
  EXPECT_THAT(KeysOfAPlan({"train.steps=2", "pipeline.stages=2",
                           "pipeline.schedule=gpipe", "pipeline.policy=equal"}),
              ElementsAre("pipeline.stages", "pipeline.policy"));
}

TEST(FollowPlan, TakesOnlyTheCutsOfAPlanThatWasNotMadeForAMesh) {
  PlanFile plan = LenetPlan();
  plan.facts.clear();
  JobSpec spec = LenetSpec(16);

  EXPECT_THAT(*FollowPlan("p.json", plan, spec), HasSubstr("only the cuts"));

  EXPECT_EQ(spec.pipeline.cuts.size(), 1u);
  EXPECT_TRUE(spec.pipeline.workers.empty());
}

JobSpec InferenceSpec() {
  JobSpec spec = LenetSpec(16);
  spec.kind = kInferKind;
  spec.infer.micro_batch = 16;
  spec.train = ForInference(spec.infer, 1);
  return spec;
}

TEST(FollowPlan, GivesAJobTheReplicasOfAMeshsPlan) {
  PlanFile plan = LenetPlan();
  const int layers = static_cast<int>(plan.problem.layers.size());
  plan.placement = {{{0, layers}, {0, 1}, {0.75, 0.25}}};

  for (JobSpec spec : {InferenceSpec(), LenetSpec(16)}) {
    ASSERT_TRUE(FollowPlan("p.json", plan, spec).ok());

    EXPECT_THAT(spec.pipeline.workers, ElementsAre("w1", "w2"));
    EXPECT_THAT(spec.pipeline.replicas, ElementsAre(2));
    EXPECT_THAT(spec.pipeline.shares, ElementsAre(0.75, 0.25));
    EXPECT_THAT(CheckJobSpec(spec), IsEmpty()) << spec.kind;
  }
}

// gpt's first and last layers share the embedding.
JobSpec TiedSpec() {
  JobSpec spec = LenetSpec(16);
  spec.model = FindModel("gpt")->model;
  spec.data.shape = {8};
  spec.data.classes = 16;
  return spec;
}

PlanFile TiedPlan(int cut) {
  const JobSpec spec = TiedSpec();
  FakeControlClient client;
  client.workers = IdleWorkers({"w1", "w2"});
  const auto question =
      AskForMesh(client, spec, {.job_file = "job.yaml", .stages = 2}).value();
  const int layers = static_cast<int>(question.inputs.problem.layers.size());
  const Placement placement = {{{0, cut}, {0}, {1}}, {{cut, layers}, {1}, {1}}};
  return {question.inputs, placement, "1f1b", question.model, 16, "", ""};
}

TEST(PlanFile, KeepsWhatLayersShareAndThatTimesArePredicted) {
  PlanFile plan = TiedPlan(2);
  ASSERT_FALSE(plan.problem.ties.empty());
  ASSERT_TRUE(plan.predicted.has_value());
  plan.problem.splits = true;
  plan.problem.sync_overlaps = false;
  plan.problem.owner_copies = 1;

  const PlanFile read = Reread(plan);

  EXPECT_TRUE(read.problem == plan.problem && read.facts == plan.facts &&
              read.predicted == plan.predicted);
  EXPECT_GT(CostOf(read.problem, read.placement)->step_seconds, [&] {
    PlanProblem untied = read.problem;
    untied.ties.clear();
    return CostOf(untied, read.placement)->step_seconds;
  }());
}

TEST(PlanFile, OfOldHasNoTiesAndIsRead) {
  json value = PlanJson(TiedPlan(2));
  for (const char* key : {"ties", "splits", "owner_copies", "sync_overlaps"}) {
    value["problem"].erase(key);
  }

  const auto read = ParsePlanFile("p.json", value.dump()).value();

  JobSpec spec = TiedSpec();
  EXPECT_THAT(*FollowPlan("p.json", read, spec),
              HasSubstr("as they share parameters"));
  spec = TiedSpec();
  EXPECT_EQ(*FollowPlan("p.json", TiedPlan(2), spec), "");
}

TEST(FollowPlan, RefusesWhatDoesNotFitTheJob) {
  const auto refused = [](const PlanFile& plan, JobSpec spec) {
    const absl::Status status = FollowPlan("p.json", plan, spec).status();
    EXPECT_EQ(ExitCodeFor(status), kExitUsage);
    return std::string(status.message());
  };
  JobSpec mlp = LenetSpec(16), cut = LenetSpec(16), pipedream = TiedSpec();
  mlp.model.name = "mlp";
  cut.pipeline.cuts = {1};
  pipedream.pipeline.schedule = "pipedream";
  pipedream.pipeline.stages = 1;
  PlanFile of_no_mesh = LenetPlan(), shorter = LenetPlan();
  const int layers = static_cast<int>(shorter.problem.layers.size());
  of_no_mesh.placement = {{{0, layers}, {0, 1}, {0.5, 0.5}}};
  of_no_mesh.facts.clear();
  shorter.problem.layers.pop_back();

  EXPECT_THAT(refused(LenetPlan(), mlp), Says("is of lenet(", "is of mlp("));
  EXPECT_THAT(refused(LenetPlan(), cut), HasSubstr("pipeline.cuts"));
  for (const JobSpec& spec : {InferenceSpec(), LenetSpec(16)}) {
    EXPECT_THAT(refused(of_no_mesh, spec),
                Says("stage 0 has 2 replicas (w1, w2)",
                     "was not made for a mesh", "--no-replicas"));
  }
  EXPECT_THAT(refused(shorter, LenetSpec(16)),
              HasSubstr("layers, the job's model has"));
  EXPECT_THAT(refused(TiedPlan(2), pipedream),
              HasSubstr("pipedream needs layers"));
}

TEST(FollowPlan, TakesAPlanWhoseWorkersHoldSeveralStages) {
  PlanFile plan = LenetPlan();
  const int layers = static_cast<int>(plan.problem.layers.size());
  plan.placement = {
      {{0, 1}, {0}, {1}}, {{1, 2}, {0}, {1}}, {{2, layers}, {1}, {1}}};
  JobSpec spec = LenetSpec(16);

  const PlanFile read = Reread(plan);

  ASSERT_TRUE(FollowPlan("p.json", read, spec).ok());
  EXPECT_THAT(spec.pipeline.workers, ElementsAre("w1", "w1", "w2"));
  const SimulatedPlan simulated = SimulationOf(read);
  EXPECT_TRUE(
      Simulate(simulated.problem, simulated.placement, simulated.options).ok());
}

TEST(SimulatePlan, SimulatesQuotasWhereDevicesHaveThem) {
  PlanFile without_facts = LenetPlan();
  without_facts.facts.clear();
  const SimulatedPlan quotas = SimulationOf(LenetPlan());
  const SimulatedPlan none = SimulationOf(without_facts);

  EXPECT_EQ(quotas.options.schedule, "gpipe");
  ASSERT_EQ(quotas.options.quotas.size(), 2u);
  EXPECT_EQ(quotas.options.quotas[0].share, 0.4);
  EXPECT_EQ(none.options.micro_batch_samples, 16);
  for (const SimulatedPlan& plan : {quotas, none}) {
    EXPECT_TRUE(Simulate(plan.problem, plan.placement, plan.options).ok());
  }
}

// --- profiles ---------------------------------------------------------------

json ProfileJson() {
  const ProfileProgress measured = TwoProfiles();
  return json::parse(
      ToJson(ProfilesDocument(measured.profiles, measured.links)));
}

ProfileSource Source(const std::string& name, const std::string& text) {
  return ParseProfileFile(name, text).value();
}

TEST(ProfileFile, ReadsWhatProfilePrints) {
  const ProfileProgress printed = TwoProfiles();

  const ProfileSource source = Source("l.json", ProfileJson().dump());

  ASSERT_EQ(source.profiles.size(), 2u);
  EXPECT_EQ(source.profiles[1].key, printed.profiles[1].key);
  EXPECT_EQ(source.profiles[1].layers, printed.profiles[1].layers);
  EXPECT_EQ(source.profiles[0].frame_seconds, 1e-5);
  EXPECT_EQ(source.links, printed.links);
}

TEST(ProfileFile, PlansForTheDevicesItWasMeasuredOn) {
  const ProfileSource source = Source("l.json", ProfileJson().dump());

  const auto inputs = InputsOfProfiles(source).value();

  EXPECT_EQ(inputs.problem.devices[1].name, "w2");
  EXPECT_DOUBLE_EQ(inputs.problem.devices[1].layer_seconds[0], 6e-3);
  EXPECT_EQ(inputs.problem.links[1][0].bytes_per_second, 2e8);
  EXPECT_TRUE(CheckProblem(inputs.problem).ok());
}

TEST(ProfileFile, ALinkInOneDirectionOnlyIsNotEnough) {
  json value = ProfileJson();
  value["links"].erase(1);
  const ProfileSource source = Source("l.json", value.dump());

  EXPECT_THAT(InputsOfProfiles(source).status().message(),
              HasSubstr("none from w2 to w1"));
}

TEST(ProfileFile, IsAPlanFileToo) {
  const ProfileSource source = Source("p.json", PlanFileText(LenetPlan()));

  ASSERT_TRUE(source.plan.has_value());
  const auto question = AskForProfile(source, {.profile = "p.json"}).value();
  EXPECT_EQ(question.inputs.problem.devices.size(), 2u);
  EXPECT_EQ(question.schedule, "gpipe");
}

TEST(ProfileFile, LayersOfAFileOnMachinesThatOneDoesNotHave) {
  const ProfileSource source = Source("l.json", ProfileJson().dump());

  const auto question = AskForProfile(source, {.profile = "l.json",
                                               .machines = "2x2",
                                               .bandwidth = "1e9,1e8",
                                               .latency = "1e-5,1e-3",
                                               .speed = "2"})
                            .value();

  const PlanProblem& problem = question.inputs.problem;
  EXPECT_EQ(problem.devices.size(), 4u);
  EXPECT_EQ(problem.devices[3].speed, 2);
  EXPECT_EQ(problem.links[0][1].latency_seconds, 1e-5);
  EXPECT_EQ(problem.links[1][2].latency_seconds, 1e-3);
  EXPECT_EQ(problem.links[1][2].bytes_per_second, 1e8);
  EXPECT_TRUE(CheckProblem(problem).ok());
}

// The question names a file, a field of it and the JSON that the field becomes;
// "-": the field goes.  "text TEXT" is a whole file.
std::string DamageAnswer(const std::string& question) {
  const std::vector<std::string> words =
      absl::StrSplit(question, absl::MaxSplits(' ', 2));
  const bool is_profile = absl::StartsWith(words[0], "profile");
  std::string text(absl::StripPrefix(
      question, absl::StrCat(words[0], words.size() > 1 ? " " : "")));
  if (!absl::StrContains(words[0], "text")) {
    json value = is_profile            ? ProfileJson()
                 : words[0] == "lenet" ? PlanJson(LenetPlan())
                                       : PlanJson(TiedPlan(2));
    const json::json_pointer at(words[1]);
    json& parent = value[at.parent_pointer()];
    if (words[2] != "-") {
      value[at] = json::parse(words[2]);
    } else if (parent.is_array()) {
      parent.erase(std::stoul(at.back()));
    } else {
      parent.erase(at.back());
    }
    text = value.dump();
  }
  const absl::Status status = is_profile
                                  ? ParseProfileFile("l.json", text).status()
                                  : ParsePlanFile("p.json", text).status();
  EXPECT_EQ(ExitCodeFor(status), kExitUsage) << question;
  return std::string(status.message());
}

TEST(PlanAndProfileFiles, RefuseEveryFieldThatLies) {
  ExpectAnswers("client/file_damages", DamageAnswer);
  EXPECT_THAT(ReadPlanFile("/nonexistent/p.json").status().message(),
              HasSubstr("cannot read /nonexistent/p.json"));
}

TEST(ProfileFile, ANotANumberIsNoJson) {
  std::string text = ProfileJson().dump();
  const std::string key = "\"forward_seconds\":";
  const size_t at = text.find(key) + key.size();
  text.replace(at, text.find_first_of(",}", at) - at, "NaN");

  EXPECT_THAT(ParseProfileFile("l.json", text).status().message(),
              HasSubstr("l.json: is not JSON"));
}

TEST(ProfileFile, GraphErrorsNameFileAndLine) {
  const auto refused = ParseProfileFile("g.txt", "\na -- Linear\n");

  EXPECT_EQ(ExitCodeFor(refused.status()), kExitUsage);
  EXPECT_THAT(refused.status().message(), Says("g.txt: ", "line 2"));
}

}  // namespace
}  // namespace paceline
