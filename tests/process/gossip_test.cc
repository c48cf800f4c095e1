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
  const std::string path = mesh.folder() + "/job.yaml";
  WriteWholeFile(
      path, absl::StrCat("name: gossip\n"
                         "model: {name: lenet}\n"
                         "data: {name: synthetic, train_samples: 1024, "
                         "test_samples: 256}\n"
                         "train: {steps: ",
                         steps,
                         ", batch: 40, micro_batch: 4, evaluate_every: 0}\n"
                         "aggregation: {mode: gossip}\n"
                         "faults:\n",
                         faults));
  return path;
}

std::string EventsOf(const Mesh& mesh) {
  return mesh.Run({"job", "events", "1"}).output;
}

bool Happened(const Mesh& mesh, const std::string& what) {
  return EventsOf(mesh).find(what) != std::string::npos;
}

TEST(Gossip, MembersLearnWhileOneIsKilledAndComesBack) {
  const Mesh mesh(kMembers);
  // Slow enough that there is something left to come back to.
  const std::string file =
      JobFile(mesh, 500,
              "  - {worker: w3, step: 20, kind: kill}\n"
              "  - {worker: w1, step: 0, steps: 0, kind: delay, seconds: "
              "0.02}\n");

  const nlohmann::json done = mesh.Json({"job", "submit", file});

  EXPECT_EQ(done["state"], "succeeded");
  EXPECT_EQ(done["step"], 500);
  EXPECT_GT(done["evaluations"].back()["accuracy"], 0.9);
  EXPECT_EQ(done["evaluations"].back()["samples"], 256)
      << "each of the four its share";
  EXPECT_THAT(EventsOf(mesh), HasSubstr("member w3 lost"));
  EXPECT_THAT(EventsOf(mesh), HasSubstr("worker w3 joined"));
  EXPECT_EQ(mesh.Run({"job", "export", "1", "-o",
                      mesh.folder() + "/weights.safetensors"})
                .exit_code,
            0);
}

TEST(Gossip, OneThatOffersNaNHarmsNobodyAndIsNamed) {
  const Mesh mesh(kMembers);
  const std::string file =
      JobFile(mesh, 120, "  - {worker: w2, step: 0, steps: 0, kind: nan}\n");

  const nlohmann::json done = mesh.Json({"job", "submit", file});

  EXPECT_EQ(done["state"], "succeeded");
  EXPECT_GT(done["evaluations"].back()["accuracy"], 0.9);
  EXPECT_THAT(EventsOf(mesh), HasSubstr("part of w2 skipped (not-finite)"));
}

TEST(Gossip, TheOthersGoOnWhileOneIsStopped) {
  const Mesh mesh(kMembers);
  const std::string file = JobFile(
      mesh, 100'000, "  - {worker: w4, step: 99999, kind: duplicate}\n");
  const Finished submitted = mesh.Run({"job", "submit", file, "--detach"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  const auto step = [&] {
    return mesh.Json({"job", "show", "1"})["step"].get<int64_t>();
  };
  ASSERT_TRUE(Eventually([&] { return step() > 5; }));
  const pid_t pid = mesh.pid_of_worker("w2");
  ASSERT_GT(pid, 1);

  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  EXPECT_TRUE(Eventually([&] { return Happened(mesh, "member w2 lost"); }))
      << EventsOf(mesh);
  const int64_t stopped = step();
  EXPECT_TRUE(Eventually([&] { return step() > stopped + 20; }));
  ASSERT_EQ(kill(pid, SIGCONT), 0);

  EXPECT_TRUE(Eventually([&] { return Happened(mesh, "worker w2 joined"); }))
      << EventsOf(mesh);
  const int64_t back = step();
  EXPECT_TRUE(Eventually([&] { return step() > back + 20; }));
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

TEST(Gossip, WhatItCannotDoIsRefusedBeforeAnythingRuns) {
  const Mesh mesh(1);
  const std::string file =
      JobFile(mesh, 10, "  - {worker: w1, step: 1, kind: nan}\n");

  const Finished rule =
      mesh.Run({"job", "submit", file, "--set", "aggregation.rule=median"});
  const Finished shards =
      mesh.Run({"job", "submit", file, "--set", "aggregation.shards=2"});

  EXPECT_EQ(rule.exit_code, 2);
  EXPECT_THAT(rule.errors, HasSubstr("leave rule out, or use mode rolling"));
  EXPECT_EQ(shards.exit_code, 2);
  EXPECT_THAT(shards.errors, HasSubstr("leave shards out"));
}

}  // namespace
}  // namespace paceline
