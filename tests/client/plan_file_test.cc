#include "client/files/plan_file.h"

#include <limits>

#include "client/commands/plan_question.h"
#include "client/commands/profile.h"
#include "client/commands/submit.h"
#include "client/files/document.h"
#include "client/files/profile_file.h"
#include "core/model/catalog.h"
#include "core/plan/search/policy.h"
#include "core/simulate/simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

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
  return {.problem = question.inputs.problem,
          .placement = answer.placement,
          .schedule = "gpipe",
          .model = question.model,
          .micro_batch = 16,
          .facts = question.inputs.facts,
          .policy = "optimal",
          .why = "because",
          .source = "measured"};
}

// The plan as it comes back from its file.
PlanFile Reread(const PlanFile& plan) {
  return ParsePlanFile("p.json", PlanFileText(plan)).value();
}

json Parsed(const PlanFile& plan) { return json::parse(PlanFileText(plan)); }

std::string ErrorOf(const json& value) {
  const auto plan = ParsePlanFile("p.json", value.dump());
  EXPECT_EQ(ExitCodeFor(plan.status()), kExitUsage);
  return std::string(plan.status().message());
}

TEST(PlanFile, ReadsBackAsItWasFreeLinksTooOrIsNotWritten) {
  const std::string path = testing::TempDir() + "/whole_plan.json";
  PlanFile plan = LenetPlan();
  plan.problem.links[0][1].bytes_per_second =
      std::numeric_limits<double>::infinity();

  ASSERT_TRUE(SavePlanFile(path, plan).ok());

  EXPECT_TRUE(ReadPlanFile(path).value() == plan);
  EXPECT_EQ(ExitCodeFor(SavePlanFile("/nonexistent/plan.json", plan)),
            kExitUsage);
}

TEST(PlanFile, RefusesWhatIsNoPlan) {
  EXPECT_THAT(ParsePlanFile("p.json", "").status().message(),
              HasSubstr("p.json: is not JSON"));
  EXPECT_THAT(ParsePlanFile("p.json", "{\"version\": 1").status().message(),
              HasSubstr("cut short"));
  EXPECT_THAT(ErrorOf(json::array()), HasSubstr("expected an object"));
  EXPECT_THAT(ErrorOf(json::object()), HasSubstr("kind: is missing"));
  EXPECT_THAT(ReadPlanFile("/nonexistent/p.json").status().message(),
              HasSubstr("cannot read /nonexistent/p.json"));
}

TEST(PlanFile, RefusesDeepNestingBeforeItIsBuilt) {
  const std::string deep(1 << 20, '[');

  EXPECT_THAT(ParsePlanFile("p.json", deep).status().message(),
              HasSubstr("nested deeper than"));
}

struct Damage {
  const char* pointer;
  json value;  // discarded: the field goes
  const char* says;
};

TEST(PlanFile, RefusesEveryFieldThatLies) {
  const Damage damages[] = {
      {"/version", 2, "version: is 2, need 1 to 1"},
      {"/kind", "recipe", "kind: is 'recipe'"},
      {"/schedule", "zigzag", "no schedule 'zigzag'"},
      {"/micro_batch", -1, "micro_batch: is -1"},
      {"/micro_batch", 1.5, "expected a whole number, got 1.5"},
      {"/problem", 3, "problem: expected an object"},
      {"/problem/layers", json::array(), "no layers"},
      {"/problem/layers/0/forward_seconds", -1,
       "problem.layers[0].forward_seconds: is -1"},
      {"/problem/layers/0/forward_seconds", nullptr, "got null"},
      {"/problem/devices", json::array(), "no devices"},
      {"/problem/links/bytes_per_second/0", json::array(), "another size"},
      {"/problem/links/bytes_per_second/0/1", 0, "no bandwidth is known"},
      {"/problem/links/bytes_per_second/0/1", "fast",
       "bytes_per_second[0][1]: is the text 'fast'"},
      {"/problem/micro_batches", (1 << 20) + 1, "need 0 to 1048576"},
      {"/problem/training", "yes", "expected true or false"},
      {"/placement", json::array(), "placement"},
      {"/placement/0/devices", json({7}), "placement"},
      {"/placement/0/devices", json({-1}), "devices[0]"},
      {"/placement/0/shares", json({0.5}), "placement"},
      {"/placement/1/first_layer", 0, "placement"},
      {"/facts/0/cpu_share", 0, "cpu_share: is 0"},
      {"/facts/0/update_seconds", json({1}), "one has 1 layers"},
      {"/facts/0", json::value_t::discarded, "facts: of 1 devices"},
      {"/problem/layers/0/kept_bytes", json::value_t::discarded,
       "kept_bytes: is missing"}};
  for (const Damage& damage : damages) {
    json value = Parsed(LenetPlan());
    const json::json_pointer pointer(damage.pointer);
    if (damage.value.is_discarded()) {
      json& parent = value[pointer.parent_pointer()];
      if (parent.is_array()) {
        parent.erase(std::stoul(pointer.back()));
      } else {
        parent.erase(pointer.back());
      }
    } else {
      value[pointer] = damage.value;
    }

    EXPECT_THAT(ErrorOf(value), HasSubstr(damage.says)) << damage.pointer;
  }
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
  return {.problem = question.inputs.problem,
          .placement = {{{0, cut}, {0}, {1}}, {{cut, layers}, {1}, {1}}},
          .model = question.model,
          .micro_batch = 16,
          .facts = question.inputs.facts,
          .predicted = question.inputs.predicted};
}

TEST(PlanFile, KeepsWhatLayersShareAndThatTimesArePredicted) {
  PlanFile plan = TiedPlan(2);
  ASSERT_FALSE(plan.problem.ties.empty());
  ASSERT_TRUE(plan.predicted.has_value());
  plan.problem.splits = true;
  plan.problem.sync_overlaps = false;
  plan.problem.owner_copies = 1;

  const PlanFile read = Reread(plan);

  EXPECT_TRUE(read == plan);
  EXPECT_GT(CostOf(read.problem, read.placement)->step_seconds, [&] {
    PlanProblem untied = read.problem;
    untied.ties.clear();
    return CostOf(untied, read.placement)->step_seconds;
  }());
}

TEST(PlanFile, RefusesTiesThatCannotBe) {
  json value = Parsed(TiedPlan(2));
  value["problem"]["ties"][0]["owner"] = 7;
  value["problem"]["ties"][0]["user"] = 3;
  EXPECT_THAT(ErrorOf(value), HasSubstr("a tie between layers 7 and 3"));
  value["problem"]["ties"][0]["owner"] = "x";
  EXPECT_THAT(ErrorOf(value), HasSubstr("problem.ties[0].owner"));
  value = Parsed(TiedPlan(2));
  value["predicted"]["low_factor"] = 2;
  EXPECT_THAT(ErrorOf(value), HasSubstr("predicted.low_factor"));
}

TEST(PlanFile, OfOldHasNoTiesAndIsRead) {
  json value = Parsed(TiedPlan(2));
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

std::string ProfileError(const json& value) {
  const auto source = ParseProfileFile("l.json", value.dump());
  EXPECT_EQ(ExitCodeFor(source.status()), kExitUsage) << value;
  return std::string(source.status().message());
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

TEST(ProfileFile, RefusesEveryNumberThatLies) {
  const Damage damages[] = {
      {"/profiles", json::array(), "profiles: there are none"},
      {"/profiles/0/layers", json::array(), "layers: there are none"},
      {"/profiles/0/layers/2/forward_seconds", -1,
       "profiles[0].layers[2].forward_seconds: is -1"},
      {"/profiles/0/layers/2/forward_seconds", nullptr, "got null"},
      {"/profiles/0/layers/2/output_bytes", "many",
       "expected a whole number, got the text 'many'"},
      {"/profiles/0/micro_batch", 0, "micro_batch: is 0"},
      {"/profiles/0/cpu_share", 0, "cpu_share: is 0"},
      {"/profiles/0/threads", 0, "threads: is 0"},
      {"/profiles/1/device", "w1", "device w1 has two"},
      {"/profiles/1/model", "vit", "and of vit"},
      {"/links/0/bytes_per_second", 0, "bytes_per_second: is 0"},
      {"/links/0/latency_seconds", -1, "latency_seconds: is -1"},
      {"/links/0/send_cpu_seconds_per_byte", -1, "send_cpu_seconds_per_byte:"},
      {"/links", 3, "expected a list"}};
  for (const Damage& damage : damages) {
    json value = ProfileJson();
    value[json::json_pointer(damage.pointer)] = damage.value;

    EXPECT_THAT(ProfileError(value), HasSubstr(damage.says)) << damage.pointer;
  }
  json missing = ProfileJson();
  missing["profiles"][0]["layers"][0].erase("kept_bytes");
  EXPECT_THAT(
      ProfileError(missing),
      HasSubstr("l.json: profiles[0].layers[0].kept_bytes: is missing"));
  EXPECT_THAT(ProfileError(json::object()), HasSubstr("profiles: is missing"));
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
