// A person who submits a data-parallel job that cannot be is told why; and a
// trainer that stands still is taken out.

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
  return mesh.Write(absl::StrCat(
      "name: group\n"
      "model: {name: lenet}\n"
      "data: {name: synthetic, train_samples: 1024, "
      "test_samples: 64}\n"
      "train: {steps: ",
      steps, ", batch: 40, micro_batch: 4, evaluate_every: 0}\n", more));
}

// Nobody says how many members there shall be, and three are there.
TEST(GroupInput, ARuleThatTheWorkersAreTooFewForIsRefusedWithTheirNumber) {
  const Mesh mesh(3);
  const std::string file = JobFile(
      mesh, 10, "aggregation: {mode: rolling, rule: trimmed-mean, k: 2}\n");

  const Finished refused = mesh.TrySubmit(file, {}, {"--detach"});

  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(refused.errors,
              AllOf(HasSubstr("leaves no part of 3 members"),
                    HasSubstr("set aggregation.min_parts to at least 5")));
  EXPECT_TRUE(mesh.Json({"job", "list"})["jobs"].empty());
}

TEST(GroupInput, AViolatedAssumptionIsToldAtSubmitWithItsNumbers) {
  const Mesh mesh(3);
  const std::string file =
      JobFile(mesh, 10,
              "aggregation: {mode: rolling, rule: median, k: 1, "
              "min_parts: 2}\n");

  const Finished few = mesh.TrySubmit(file, {}, {"--dry-run"});
  const Finished many =
      mesh.TrySubmit(file, {"aggregation.k=2"}, {"--dry-run"});

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
  mesh.Detach(file);

  EXPECT_TRUE(mesh.EventComes(
      "member w2 evicted (it answers, but has finished no instruction"))
      << mesh.Events();
  EXPECT_TRUE(mesh.EventComes("worker w2 joined")) << mesh.Events();
  EXPECT_TRUE(mesh.StepPasses(mesh.Step("1") + 5)) << mesh.Events();
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

}  // namespace
}  // namespace paceline
