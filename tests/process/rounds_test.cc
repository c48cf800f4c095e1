// The rolling server over real processes: who dies, hangs or sends nonsense
// costs its own part, and nobody diverges.

#include <signal.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kMembers = 5;

std::string JobFile(const Mesh& mesh, int steps, const std::string& more) {
  const std::string path = mesh.folder() + "/job.yaml";
  WriteWholeFile(
      path, absl::StrCat("name: group\n"
                         "model: {name: lenet}\n"
                         "data: {name: synthetic, train_samples: 1024, "
                         "test_samples: 64}\n"
                         "train: {steps: ",
                         steps,
                         ", batch: 40, micro_batch: 4, evaluate_every: 0}\n"
                         "aggregation: {mode: rolling}\n",
                         more));
  return path;
}

// What members say of their states while a job runs.
class Watch {
 public:
  explicit Watch(const Mesh& mesh) : mesh_(mesh) {}

  // The job as it is now.
  nlohmann::json Look() {
    const nlohmann::json job = mesh_.Json({"job", "show", "1"});
    for (const nlohmann::json& worker : job["workers"]) {
      const nlohmann::json& member = worker["member"];
      if (member.is_null() || member["state_step"] == 0) continue;
      hashes_[member["state_step"]].insert(member["state_hash"]);
    }
    return job;
  }

  // Every state that somebody named is the only one of its step.
  void ExpectNobodyDiverged() const {
    for (const auto& [step, hashes] : hashes_) {
      EXPECT_THAT(hashes, SizeIs(1)) << "after step " << step;
    }
    EXPECT_GT(hashes_.size(), 2u) << "nobody was watched";
  }

 private:
  const Mesh& mesh_;
  std::map<int64_t, std::set<std::string>> hashes_;
};

std::string EventsOf(const Mesh& mesh) {
  return mesh.Run({"job", "events", "1"}).output;
}

class KilledServer : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledServer, CostsItsPartAndComesBackAsAMember) {
  const Mesh mesh(kMembers);
  const std::string file = JobFile(
      mesh, 100'000,
      absl::StrCat("faults: [{worker: w3, step: 20, kind: kill, phase: ",
                   GetParam(), "}]\n"));
  const Finished submitted = mesh.Run({"job", "submit", file, "--detach"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  Watch watch(mesh);

  // Lost, and a member again, with the others' state.
  EXPECT_TRUE(Eventually([&] {
    watch.Look();
    return EventsOf(mesh).find("worker w3 joined") != std::string::npos;
  })) << EventsOf(mesh);
  int64_t joined_at = 0;
  const nlohmann::json joined = watch.Look();
  for (const nlohmann::json& worker : joined["workers"]) {
    joined_at = std::max(joined_at, worker["member"]["steps"].get<int64_t>());
  }
  EXPECT_TRUE(Eventually([&] {
    int level = 0;
    const nlohmann::json job = watch.Look();
    for (const nlohmann::json& worker : job["workers"]) {
      level += worker["member"]["steps"] > joined_at + 10;
    }
    return level == kMembers;
  })) << mesh.Run({"job", "show", "1"}).output;

  EXPECT_THAT(EventsOf(mesh), HasSubstr("member w3 lost"));
  watch.ExpectNobodyDiverged();
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Phases, KilledServer,
                         ::testing::Values("computing", "gathering",
                                           "spreading", "committing"),
                         [](const auto& info) { return info.param; });

// Half of the coordinator's default lease, `--lease`.
constexpr std::chrono::milliseconds kHalfALease(1500);

// min_parts is the whole group, so that each round waits for every part: both
// runs sum the same parts, and end with the same bytes.
TEST(Rounds, AMemberStoppedForHalfALeaseMakesTheRunSlowerAndNothingElse) {
  const Mesh mesh(3);
  const std::string file = JobFile(mesh, 200, "");
  const std::vector<std::string> submit = {"job", "submit", file, "--set",
                                           "aggregation.min_parts=3"};
  const nlohmann::json undisturbed = mesh.Json(submit);
  ASSERT_EQ(undisturbed["state"], "succeeded");
  const pid_t pid = mesh.pid_of_worker("w2");
  ASSERT_GT(pid, 1);

  std::vector<std::string> detached = submit;
  detached.push_back("--detach");
  ASSERT_EQ(mesh.Run(detached).exit_code, 0);
  ASSERT_TRUE(Eventually([&] {
    return mesh.Json({"job", "show", "2"})["step"] > 10;
  }));
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  std::this_thread::sleep_for(kHalfALease);
  const nlohmann::json stopped = mesh.Json({"job", "show", "2"});
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  EXPECT_EQ(mesh.Run({"job", "wait", "2"}).exit_code, 0);
  const nlohmann::json disturbed = mesh.Json({"job", "show", "2"});

  EXPECT_LT(stopped["step"], 200) << "it was stopped too late";
  EXPECT_EQ(disturbed["state"], "succeeded");
  EXPECT_EQ(disturbed["skipped_steps"], 0);
  EXPECT_EQ(disturbed["weights_sha256"], undisturbed["weights_sha256"]);
  // The first view to the end: another process would have made another one.
  const std::set<std::string> changes = {"lost", "evicted",  "joining",
                                         "left", "takeover", "paused",
                                         "void", "again",    "joined"};
  const nlohmann::json events = mesh.Json({"job", "events", "2"});
  for (const nlohmann::json& event : events["events"]) {
    EXPECT_EQ(changes.count(event["kind"]), 0u) << event;
  }
  EXPECT_EQ(mesh.pid_of_worker("w2"), pid);
}

TEST(Rounds, AStoppedMemberIsSkippedPastTheLeaseAndComesBack) {
  const Mesh mesh(3);
  const Finished submitted =
      mesh.Run({"job", "submit", JobFile(mesh, 100'000, ""), "--detach"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  Watch watch(mesh);
  ASSERT_TRUE(Eventually([&] { return watch.Look()["step"] > 5; }));
  const pid_t pid = mesh.pid_of_worker("w2");
  ASSERT_GT(pid, 1);

  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  EXPECT_TRUE(Eventually([&] {
    return EventsOf(mesh).find("member w2 lost") != std::string::npos;
  })) << EventsOf(mesh);
  const int64_t step = watch.Look()["step"];
  EXPECT_TRUE(Eventually([&] { return watch.Look()["step"] > step + 5; }))
      << "the others go on";
  ASSERT_EQ(kill(pid, SIGCONT), 0);

  EXPECT_TRUE(Eventually([&] {
    watch.Look();
    return EventsOf(mesh).find("worker w2 joined") != std::string::npos;
  })) << EventsOf(mesh);
  const int64_t back = watch.Look()["step"];
  EXPECT_TRUE(Eventually([&] { return watch.Look()["step"] > back + 5; }));
  watch.ExpectNobodyDiverged();
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

TEST(Rounds, LiarsAreOutvotedAndNobodyIsHarmedByNaN) {
  const Mesh mesh(kMembers);
  const std::string file = JobFile(
      mesh, 120,
      "faults:\n"
      "  - {worker: w1, step: 0, steps: 0, kind: sign-flip, scale: 10}\n"
      "  - {worker: w4, step: 0, steps: 0, kind: nan}\n");

  const nlohmann::json good =
      mesh.Json({"job", "submit", file, "--set", "aggregation.rule=median",
                 "--set", "aggregation.k=1"});

  EXPECT_EQ(good["state"], "succeeded");
  EXPECT_GT(good["evaluations"].back()["accuracy"], 0.9);
  EXPECT_THAT(EventsOf(mesh), HasSubstr("w4"));
}

TEST(Rounds, UnevenSharesTrainAsOneProcessWithAllSamples) {
  const Mesh mesh(3);
  const std::string file = JobFile(mesh, 12, "");

  const nlohmann::json alone =
      mesh.Json({"job", "submit", file, "--set", "aggregation.mode=none",
                 "--set", "pipeline.stages=1"});
  const nlohmann::json shared = mesh.Json(
      {"job", "submit", file, "--set", "aggregation.workers=[w1,w2,w3]",
       "--set", "aggregation.shares=[5,3,2]"});

  ASSERT_EQ(alone["state"], "succeeded");
  ASSERT_EQ(shared["state"], "succeeded");
  EXPECT_NEAR(shared["evaluations"].back()["loss"].get<double>(),
              alone["evaluations"].back()["loss"].get<double>(), 1e-5);
}

TEST(Rounds, ADrainedMemberLeavesWithoutALossAndComesBack) {
  const Mesh mesh(3);
  const Finished submitted =
      mesh.Run({"job", "submit", JobFile(mesh, 100'000, ""), "--detach"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  Watch watch(mesh);
  ASSERT_TRUE(Eventually([&] { return watch.Look()["step"] > 5; }));

  EXPECT_EQ(mesh.Run({"node", "drain", "w2"}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] {
    return EventsOf(mesh).find("w2 left") != std::string::npos;
  })) << EventsOf(mesh);
  EXPECT_EQ(mesh.Run({"node", "undrain", "w2"}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] {
    watch.Look();
    return EventsOf(mesh).find("worker w2 joined") != std::string::npos;
  })) << EventsOf(mesh);
  watch.ExpectNobodyDiverged();
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

}  // namespace
}  // namespace paceline
