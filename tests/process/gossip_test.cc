// Gossip over real processes: members average in pairs, and whoever dies, stops
// or offers nonsense costs the exchanges with it.

#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr int kMembers = 4;

std::string JobFile(const Mesh& mesh, int steps, const std::string& faults) {
  return mesh.Write(
      absl::StrCat("name: gossip\n"
                   "model: {name: lenet}\n"
                   "data: {name: synthetic, train_samples: 1024, "
                   "test_samples: 256}\n"
                   "train: {steps: ",
                   steps,
                   ", batch: 40, micro_batch: 4, evaluate_every: 0}\n"
                   "aggregation: {mode: gossip}\n"
                   "faults:\n",
                   faults));
}

TEST(Gossip, MembersLearnWhileOneIsKilledAndComesBack) {
  const Mesh mesh(kMembers);
  // Slow enough that there is something left to come back to.
  const std::string file =
      JobFile(mesh, 500,
              "  - {worker: w3, step: 20, kind: kill}\n"
              "  - {worker: w1, step: 0, steps: 0, kind: delay, seconds: "
              "0.02}\n");

  const nlohmann::json done = mesh.Submit(file);

  EXPECT_EQ(done["step"], 500);
  EXPECT_GT(done["evaluations"].back()["accuracy"], 0.9);
  EXPECT_EQ(done["evaluations"].back()["samples"], 256)
      << "each of the four its share";
  EXPECT_THAT(mesh.Events(), HasSubstr("member w3 lost"));
  EXPECT_THAT(mesh.Events(), HasSubstr("worker w3 joined"));
  mesh.Export();
}

TEST(Gossip, OneThatOffersNaNHarmsNobodyAndIsNamed) {
  const Mesh mesh(kMembers);
  const std::string file =
      JobFile(mesh, 120, "  - {worker: w2, step: 0, steps: 0, kind: nan}\n");

  const nlohmann::json done = mesh.Submit(file);

  EXPECT_GT(done["evaluations"].back()["accuracy"], 0.9);
  EXPECT_THAT(mesh.Events(), HasSubstr("part of w2 skipped (not-finite)"));
}

TEST(Gossip, TheOthersGoOnWhileOneIsStopped) {
  const Mesh mesh(kMembers);
  const std::string file = JobFile(
      mesh, 100'000, "  - {worker: w4, step: 99999, kind: duplicate}\n");
  mesh.Detach(file);
  ASSERT_TRUE(mesh.StepPasses(5));
  const pid_t pid = mesh.pid_of_worker("w2");
  ASSERT_GT(pid, 1);

  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  EXPECT_TRUE(mesh.EventComes("member w2 lost")) << mesh.Events();
  const int64_t stopped = mesh.Step("1");
  EXPECT_TRUE(mesh.StepPasses(stopped + 20));
  ASSERT_EQ(kill(pid, SIGCONT), 0);

  EXPECT_TRUE(mesh.EventComes("worker w2 joined")) << mesh.Events();
  const int64_t back = mesh.Step("1");
  EXPECT_TRUE(mesh.StepPasses(back + 20));
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

}  // namespace
}  // namespace paceline
