#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/commands/study.h"
#include "client/files/study_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr char kPlan[] =
    "plan: {cost_model: pipedream, machines: 2x2, bandwidth: \"1e3,1e2\"}\n";

// Seconds 3 and 6; 8 bytes between them.
constexpr char kTwoNodes[] =
    "n1 -- L -- forward_compute_time=1000, backward_compute_time=2000, "
    "activation_size=8, parameter_size=0\n"
    "n2 -- L -- forward_compute_time=2000, backward_compute_time=4000, "
    "activation_size=8, parameter_size=0\n"
    "\tn1 -- n2\n";

struct PlanStudyBed : CommandBed {
  explicit PlanStudyBed(const std::string& text,
                        OutputFormat format = OutputFormat::kTable)
      : CommandBed(format) {
    folder.Write("two.txt", kTwoNodes);
    folder.Write("bad.txt", "1 -- 2\n");
    options.file = folder.Write("s.yaml", absl::StrCat(kPlan, text));
  }
  ExitCode Run() { return StudyCommand(context, options); }
  TemporaryFolder folder;
  StudyOptions options;
};

TEST(PlanStudyFile, SaysWhatIsWrong) {
  for (const auto& [text, word] : std::map<std::string, std::string>{
           {"vary: {machine: [16]}",
            "s.yaml:2: vary: there is no key of a plan 'machine'; did you mean "
            "'machines'"},
           {"vary: {train.batch: [16]}", "no key of a plan 'train.batch'"},
           {"vary: {cost_model: [ours]}", "no cost model 'ours'"},
           {"vary: {count_transfers: [maybe]}", "no value 'maybe'"},
           {"measure: [accuracy]", "no measure of a plan 'accuracy'"},
           {"repeat: 3", "s.yaml:2: repeat: goes with jobs"},
           {"base: {model: {name: lenet}}", "base: goes with jobs"},
           {"race: {on: loss}", "race: goes with jobs"},
           {"against: one", "against: goes with jobs"},
           {"published: 3", "published: expected a list, as in"},
           {"published: [2]", "published: expected keys"},
           {"published: [{sped_up: 2}]", "no key of a plan 'sped_up'"},
           {"plan: [1]", "plan: expected keys"},
           {"plan: {micro_batches: 0}", "plan.micro_batches: expected"}}) {
    const TemporaryFolder folder;
    const std::string plan = text.substr(0, 5) == "plan:" ? "" : kPlan;

    const auto study =
        ReadStudyFile(folder.Write("s.yaml", absl::StrCat(plan, text)), {});

    EXPECT_EQ(ExitCodeFor(study.status()), kExitUsage) << text;
    EXPECT_THAT(study.status().message(), HasSubstr(word)) << text;
  }
}

TEST(PlanStudy, PlansAndSimulatesWithoutACoordinator) {
  PlanStudyBed bed(
      "vary: {profile: [two.txt], machines: [\"3\"], bandwidth: [1e3]}\n"
      "measure: [configuration, bottleneck, over_one, simulated]\n"
      "published:\n"
      "- {machines: 3, configuration: 2-1, note: It is so.}\n");

  EXPECT_EQ(bed.Run(), kExitOk) << bed.err.str();

  EXPECT_TRUE(bed.client.submitted.empty());
  EXPECT_THAT(bed.out.str(),
              Says("PUBLISHED", "two.txt", "3 s", "configuration 2-1",
                   "machines 3: configuration 2-1 is published. It is so.",
                   "bottleneck, 3 s"));
  EXPECT_THAT(bed.out.str(), Not(HasSubstr("JOBS")));
}

TEST(PlanStudy, TellsProfilesThatAreMissingOrNoGraph) {
  PlanStudyBed bed("vary: {profile: [two.txt, none.txt, bad.txt]}\n",
                   OutputFormat::kJson);

  EXPECT_EQ(bed.Run(), kExitFailed);

  const json trials = bed.Output()["trials"];
  EXPECT_TRUE(trials[0]["jobs"][0]["why"].is_null());
  EXPECT_THAT(trials[1]["jobs"][0]["why"].get<std::string>(),
              Says("none.txt", "No such file"));
  EXPECT_THAT(trials[2]["jobs"][0]["why"].get<std::string>(),
              HasSubstr("bad.txt: profile, line 1"));
}

TEST(PlanStudy, OfNothingThatCanBePlannedIsRefused) {
  for (const auto& [text, word] : std::map<std::string, std::string>{
           {"vary: {profile: [none.txt]}", "No such file"},
           {"vary: {machines: [4x4]}", "nothing to plan"},
           {"vary: {profile: [two.txt], bandwidth: [1e3]}", "2 levels"},
           {"vary: {profile: [two.txt]}\n"
            "published: [{machines: 4x4, speed_up: 2}]",
            "no trial with machines=4x4"}}) {
    PlanStudyBed bed(text);

    EXPECT_EQ(bed.Run(), kExitUsage) << text;
    EXPECT_THAT(bed.err.str(), HasSubstr(word)) << text;
  }
}

TEST(PlanStudy, TakesSets) {
  PlanStudyBed bed("vary: {profile: [two.txt]}\n", OutputFormat::kJson);
  bed.options.sets = {"cost_model=paceline", "policy=equal"};
  EXPECT_EQ(bed.Run(), kExitOk) << bed.err.str();
  EXPECT_EQ(bed.Output()["trials"][0]["values"]["configuration"], "1-1");

  bed.options.sets = {"polcy=optimal"};
  EXPECT_EQ(bed.Run(), kExitUsage);
  EXPECT_THAT(bed.err.str(), HasSubstr("did you mean 'policy'"));
}

TEST(PlanStudy, ThatIsPublishedGivesWhatTheReleasedOptimizerDoes) {
  // tests/data/pipedream/reference.csv, lines that count transfers; shapes and
  // speed-ups as the released optimizer prints them.
  struct Row {
    const char* label;
    const char* configuration;  // or null: there are several as good
    double bottleneck_seconds;
    double over_one;
  };
  constexpr Row kRows[] = {
      {"vgg16.txt 1x16 1e10,1.25e9", "13-2-1", 0.05479489083076922, 12.27},
      {"vgg16.txt 4x4 1e10,1.25e9", nullptr, 0.06713399693333331, 10.02},
      // Its own 8-5-3 is as good.
      {"resnet50.txt 1x16 1e10,1.25e9", nullptr, 0.04384779004444447, 10.11},
      {"gnmt.txt 4x4 1e10,1.25e9", nullptr, 0.011081, 8.07},
      {"gnmt.txt 1x16 1e10,1.25e9", nullptr, 0.017125, 5.22}};
  const TemporaryFolder folder;
  CommandBed bed(OutputFormat::kJson);
  StudyOptions options;
  options.file =
      absl::StrCat(PACELINE_SOURCE_DIR, "/deploy/studies/pipedream.yaml");
  options.report = folder.Path("r.csv");

  ASSERT_EQ(StudyCommand(bed.context, options), kExitOk) << bed.err.str();

  std::map<std::string, json> values;
  const json output = bed.Output();
  for (const json& trial : output["trials"]) {
    EXPECT_TRUE(trial["jobs"][0]["why"].is_null()) << trial;
    EXPECT_GT(trial["values"]["simulated_speed_up"]["median"], 0) << trial;
    values[trial["label"]] = trial["values"];
  }
  EXPECT_EQ(values.size(), 27u);
  for (const Row& row : kRows) {
    const json& value = values[row.label];
    ASSERT_TRUE(value.is_object()) << row.label;
    EXPECT_NEAR(
        value["bottleneck"]["median"].get<double>() / row.bottleneck_seconds, 1,
        1e-9)
        << row.label;
    EXPECT_NEAR(value["over_one"]["median"], row.over_one, 0.005) << row.label;
    if (row.configuration == nullptr) continue;
    EXPECT_EQ(value["configuration"], row.configuration) << row.label;
  }
  EXPECT_THAT(folder.Read("r.csv"), Says("why", "15-1, speed_up 5.28"));
}

}  // namespace
}  // namespace paceline
