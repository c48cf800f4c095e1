#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/job/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;

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
    options.file = folder.Write(
        "s.yaml",
        absl::StrCat(absl::StartsWith(text, "plan:") ? "" : kPlan, text));
  }
  ExitCode Run() { return Code(StudyCommand(context, options)); }
  TemporaryFolder folder;
  StudyOptions options;
};

TEST(PlanStudy, AnswersAFileWithoutACoordinator) {
  ExpectAnswers("client/plan_studies", [](const std::string& text) {
    PlanStudyBed bed(text);
    const std::string said = bed.Said(bed.Run());
    EXPECT_TRUE(bed.client.submitted.empty());
    return absl::StrReplaceAll(said, {{bed.folder.path() + "/", ""}});
  });
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

  ASSERT_EQ(bed.Code(StudyCommand(bed.context, options)), kExitOk)
      << bed.err.str();

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
