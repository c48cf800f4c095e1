// What a person is told who submits a data-parallel job that cannot be, or that
// is not what it seems; and a trainer that stands still.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string JobFile(const Mesh& mesh, int64_t steps, const std::string& more) {
  const std::string path = mesh.folder() + "/job.yaml";
  WriteWholeFile(
      path,
      absl::StrCat("name: group\n"
                   "model: {name: lenet}\n"
                   "data: {name: synthetic, train_samples: 1024, "
                   "test_samples: 64}\n"
                   "train: {steps: ",
                   steps, ", batch: 40, micro_batch: 4, evaluate_every: 0}\n",
                   more));
  return path;
}

struct BadSubmission {
  std::vector<std::string> set;  // on top of mode rolling
  std::vector<std::string> says;
};

TEST(GroupInput, BadSubmissionsAreRefusedWithWhatWouldBeRight) {
  const Mesh mesh(3);
  const std::string file =
      JobFile(mesh, 10, "aggregation: {mode: rolling, members: 3}\n");
  const std::vector<BadSubmission> all = {
      {{"aggregation.min_parts=4"}, {"is 4, but there are 3 members"}},
      {{"aggregation.rule=medain"}, {"medain", "did you mean 'median'?"}},
      {{"aggregation.rule=trimmed-mean", "aggregation.k=2"},
       {"leaves no part of 3 members", "use k of at most 1"}},
      // Nobody says how many there shall be, and three are there.
      {{"aggregation.rule=trimmed-mean", "aggregation.k=2",
        "aggregation.members=0"},
       {"leaves no part of 3 members",
        "set aggregation.min_parts to at least 5"}},
      {{"aggregation.rule=krum", "aggregation.shards=2"},
       {"rule krum judges whole parts", "set shards to 1"}},
      {{"faults=[{worker: w9, kind: nan}]"},
       {"faults[0].worker: unknown worker 'w9'"}},
  };

  for (const BadSubmission& bad : all) {
    std::vector<std::string> arguments = {"job", "submit", file, "--detach"};
    for (const std::string& set : bad.set) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    const Finished refused = mesh.Run(arguments);

    EXPECT_EQ(refused.exit_code, 2) << bad.set[0] << refused.output;
    for (const std::string& text : bad.says) {
      EXPECT_THAT(refused.errors, HasSubstr(text)) << bad.set[0];
    }
  }
  EXPECT_TRUE(mesh.Json({"job", "list"})["jobs"].empty());
}

TEST(GroupInput, AViolatedAssumptionIsToldAtSubmitWithItsNumbers) {
  const Mesh mesh(3);
  const std::string file =
      JobFile(mesh, 10,
              "aggregation: {mode: rolling, rule: median, k: 1, "
              "min_parts: 2}\n");

  const Finished few = mesh.Run({"job", "submit", file, "--dry-run"});
  const Finished many = mesh.Run(
      {"job", "submit", file, "--dry-run", "--set", "aggregation.k=2"});

  EXPECT_EQ(few.exit_code, 0) << few.errors;
  EXPECT_THAT(
      few.errors,
      AllOf(HasSubstr("note: a round may close with min_parts=2 of 3 parts"),
            HasSubstr("withstands k=1 liars of at least 3 members"),
            HasSubstr("set aggregation.min_parts to at least 3")));
  EXPECT_EQ(many.exit_code, 0) << many.errors;
  EXPECT_THAT(many.errors,
              AllOf(HasSubstr("note: rule median withstands k=2 liars of at "
                              "least 5 members"),
                    HasSubstr("there are 3: use k of at most 1")));
}

// Its I/O threads answer, and no deadline closes a round that waits for all.
TEST(GroupInput, AHungTrainerIsTakenOutAndComesBackThoughRoundsWaitForAll) {
  const Mesh mesh(3);
  const std::string file =
      JobFile(mesh, 1'000'000,
              "aggregation: {mode: rolling, min_parts: 3}\n"
              "faults: [{worker: w2, step: 20, kind: delay, seconds: 3600}]\n");
  const Finished submitted = mesh.Run({"job", "submit", file, "--detach"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  const auto events = [&] { return mesh.Run({"job", "events", "1"}).output; };
  const auto says = [&](const std::string& text) {
    return [&events, text] { return events().find(text) != std::string::npos; };
  };

  EXPECT_TRUE(
      Eventually(says("member w2 evicted (it answers, but has finished "
                      "no instruction")))
      << events();
  EXPECT_TRUE(Eventually(says("worker w2 joined"))) << events();
  const int64_t back = mesh.Json({"job", "show", "1"})["step"];
  EXPECT_TRUE(Eventually([&] {
    return mesh.Json({"job", "show", "1"})["step"].get<int64_t>() > back + 5;
  })) << events();
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

}  // namespace
}  // namespace paceline
