// The rolling server over real processes: who dies, hangs or sends nonsense
// costs its own part, and nobody diverges.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::FloatNear;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::SizeIs;

constexpr int kMembers = 5;

std::string JobFile(const Mesh& mesh, int steps, const std::string& more) {
  return mesh.Write(
      absl::StrCat("name: group\n"
                   "model: {name: lenet}\n"
                   "data: {name: synthetic, train_samples: 1024, "
                   "test_samples: 64}\n"
                   "train: {steps: ",
                   steps,
                   ", batch: 40, micro_batch: 4, evaluate_every: 0}\n"
                   "aggregation: {mode: rolling}\n",
                   more));
}

// Collects what members say of their states while a job runs.
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
      newest_[worker["name"]] = member["state_step"];
    }
    return job;
  }

  // The newest step after which that worker has said what its state is.
  int64_t newest(const std::string& worker) { return newest_[worker]; }

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
  std::map<std::string, int64_t> newest_;
};

// The first step from `from` on that this worker serves, with all there: in
// turn, by id.
int64_t StepServedBy(const Mesh& mesh, const std::string& name, int64_t from) {
  std::map<int64_t, std::string> workers;
  const nlohmann::json nodes = mesh.Json({"node", "list"});
  for (const nlohmann::json& node : nodes["workers"]) {
    workers[node["id"]] = node["name"];
  }
  EXPECT_EQ(workers.size(), static_cast<size_t>(kMembers));
  int64_t place = 0;
  for (const auto& [id, worker] : workers) {
    if (worker == name) break;
    ++place;
  }
  return from + (place - from % kMembers + kMembers) % kMembers;
}

class KilledServer : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledServer, CostsItsPartAndComesBackAsAMember) {
  const Mesh mesh(kMembers);
  const std::string file = JobFile(
      mesh, 100'000,
      absl::StrCat("faults: [{worker: w3, step: ", StepServedBy(mesh, "w3", 20),
                   ", kind: kill, phase: ", GetParam(), "}]\n"));
  mesh.Detach(file);
  Watch watch(mesh);

  // Lost, and a member again, with the others' state.
  EXPECT_TRUE(Eventually([&] {
    watch.Look();
    return mesh.Events().find("worker w3 joined") != std::string::npos;
  })) << mesh.Events();
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

  EXPECT_THAT(mesh.Events(), HasSubstr("member w3 lost"));
  EXPECT_THAT(mesh.Events(), HasSubstr("server w3 lost"));
  watch.ExpectNobodyDiverged();
  // It never began anew, nor left a step out.
  const nlohmann::json job = watch.Look();
  EXPECT_EQ(job["attempt"], 1);
  EXPECT_EQ(job["skipped_steps"], 0);
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Phases, KilledServer,
                         ::testing::Values("computing", "gathering",
                                           "spreading", "committing"),
                         [](const auto& info) { return info.param; });

// Half of the coordinator's default lease, `--lease`.
constexpr std::chrono::milliseconds kHalfALease(1500);
constexpr std::chrono::milliseconds kTwoLeases = 4 * kHalfALease;

// min_parts is the whole group, so that each round waits for every part: both
// runs sum the same parts, and end with the same bytes.
TEST(Rounds, AMemberStoppedForHalfALeaseMakesTheRunSlowerAndNothingElse) {
  const Mesh mesh(3);
  const std::string file = JobFile(mesh, 200, "");
  const nlohmann::json undisturbed =
      mesh.Submit(file, {"aggregation.min_parts=3"});
  const pid_t pid = mesh.pid_of_worker("w2");
  ASSERT_GT(pid, 1);

  mesh.Detach(file, {"aggregation.min_parts=3"});
  ASSERT_TRUE(mesh.StepPasses(10, "2"));
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  std::this_thread::sleep_for(kHalfALease);
  const nlohmann::json stopped = mesh.Job("2");
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  EXPECT_EQ(mesh.Run({"job", "wait", "2"}).exit_code, 0);
  const nlohmann::json disturbed = mesh.Job("2");

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
  mesh.Detach(JobFile(mesh, 100'000, ""));
  Watch watch(mesh);
  ASSERT_TRUE(Eventually([&] { return watch.Look()["step"] > 5; }));
  const pid_t pid = mesh.pid_of_worker("w2");
  ASSERT_GT(pid, 1);

  const auto stopped = std::chrono::steady_clock::now();
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  EXPECT_TRUE(mesh.EventComes("member w2 lost")) << mesh.Events();
  const int64_t step = watch.Look()["step"];
  EXPECT_TRUE(Eventually([&] {
    return watch.Look()["step"] > step + 5 &&
           std::chrono::steady_clock::now() - stopped > kTwoLeases;
  })) << "the others go on";
  ASSERT_EQ(kill(pid, SIGCONT), 0);

  EXPECT_TRUE(Eventually([&] {
    watch.Look();
    return mesh.Events().find("worker w2 joined") != std::string::npos;
  })) << mesh.Events();
  // Fenced: what it was before it was stopped took part in nothing more.
  EXPECT_THAT(mesh.log("w2"), HasSubstr("starting anew"));
  const int64_t back = watch.Look()["step"];
  EXPECT_TRUE(Eventually([&] {
    watch.Look();
    return watch.newest("w2") > back;
  })) << "it says what its state is, too";
  watch.ExpectNobodyDiverged();
  EXPECT_EQ(watch.Look()["attempt"], 1);
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

// Where one of the workers tells its metrics.
std::string WorkersMetrics(const Mesh& mesh) {
  const auto groups = nlohmann::json::parse(Mesh::Get(mesh.http(), "/sd"));
  for (const nlohmann::json& group : groups) {
    for (const std::string target : group["targets"]) {
      if (target != mesh.http()) return target;
    }
  }
  return "";
}

// Adds up lines as "paceline_worker_rounds_total{...} 12" over all labels.
double SumOf(const std::string& metrics, const std::string& name) {
  double sum = 0;
  for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    double value = 0;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
    sum += value;
  }
  return sum;
}

// Whether one process of a user may read another one's memory.
bool MayReadOtherProcesses() {
  std::ifstream scope("/proc/sys/kernel/yama/ptrace_scope");
  int value = 0;
  return !(scope >> value) || value == 0 || geteuid() == 0;
}

TEST(Rounds, BetweenWorkersOfOneMachineTravelThroughNoSocket) {
  if (!MayReadOtherProcesses()) GTEST_SKIP() << "yama forbids it";
  const Mesh mesh(2);
  mesh.Detach(JobFile(mesh, 100'000, ""));
  std::string metrics;

  EXPECT_TRUE(Eventually([&] {
    metrics = WorkersMetrics(mesh);
    if (metrics.empty()) return false;
    const std::string text = Mesh::Get(metrics, "/metrics");
    return SumOf(text, "paceline_worker_round_borrowed_bytes_total") > 1e6;
  })) << metrics;

  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

TEST(Rounds, NeedNoCoordinatorWhileEveryMemberAnswers) {
  const Mesh mesh(3);
  mesh.Detach(JobFile(mesh, 100'000, ""));
  Watch watch(mesh);
  ASSERT_TRUE(Eventually([&] { return watch.Look()["step"] > 5; }));
  const std::string metrics = WorkersMetrics(mesh);
  const pid_t coordinator = mesh.pid_of_coordinator();
  ASSERT_GT(coordinator, 1);

  ASSERT_EQ(kill(coordinator, SIGSTOP), 0);
  const auto rounds = [&] {
    return SumOf(Mesh::Get(metrics, "/metrics"),
                 "paceline_worker_rounds_total");
  };
  const double before = rounds();
  EXPECT_GT(before, 0);
  EXPECT_TRUE(Eventually([&] { return rounds() > before + 50; }));
  ASSERT_EQ(kill(coordinator, SIGCONT), 0);

  const int64_t step = watch.Look()["step"];
  EXPECT_TRUE(Eventually([&] { return watch.Look()["step"] > step + 5; }));
  EXPECT_EQ(watch.Look()["attempt"], 1);
  watch.ExpectNobodyDiverged();
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

// Each round waits for all three, so that all have the same parts to sum.
TEST(Rounds, ShardsAndModesEndWithTheSameBytesAndEveryRuleTrains) {
  const Mesh mesh(3);
  const std::string file = JobFile(mesh, 40, "");
  const auto run = [&](std::vector<std::string> sets) {
    sets.push_back("aggregation.min_parts=3");
    const nlohmann::json job = mesh.Submit(file, sets);
    EXPECT_EQ(job["skipped_steps"], 0);
    return job;
  };
  const nlohmann::json plain = run({});

  for (const char* same :
       {"aggregation.shards=3", "aggregation.mode=central"}) {
    EXPECT_EQ(run({same})["weights_sha256"], plain["weights_sha256"]) << same;
  }
  const auto loss = [](const nlohmann::json& job) {
    return job["evaluations"].back()["loss"].get<double>();
  };
  const nlohmann::json narrow = run({"aggregation.codec=bf16"});
  EXPECT_NE(narrow["weights_sha256"], plain["weights_sha256"]);
  EXPECT_LT(loss(narrow), 2 * loss(plain));
  // As of one who guesses among ten classes.
  const double untrained = std::log(10);
  for (const char* rule : {"trimmed-mean", "median", "suspicion", "zeno"}) {
    const nlohmann::json job =
        run({absl::StrCat("aggregation.rule=", rule), "aggregation.k=1"});
    EXPECT_NE(job["weights_sha256"], plain["weights_sha256"]) << rule;
    EXPECT_LT(loss(job), 0.9 * untrained) << rule;
  }
}

TEST(Rounds, LiarsAreOutvotedAndNobodyIsHarmedByNaN) {
  const Mesh mesh(kMembers);
  const std::string file = JobFile(
      mesh, 120,
      "faults:\n"
      "  - {worker: w1, step: 0, steps: 0, kind: sign-flip, scale: 10}\n"
      "  - {worker: w4, step: 0, steps: 0, kind: nan}\n");

  const nlohmann::json good =
      mesh.Submit(file, {"aggregation.rule=median", "aggregation.k=1"});

  EXPECT_GT(good["evaluations"].back()["accuracy"], 0.9);
  EXPECT_THAT(mesh.Events(), HasSubstr("part of w4 skipped"));
}

// The parameters that a job ended with, one after the other.
std::vector<float> WeightsOf(const Mesh& mesh, const std::string& job) {
  const std::string bytes = ReadWholeFile(mesh.Export(job));
  uint64_t header = 0;
  if (bytes.size() < sizeof(header)) return {};
  std::memcpy(&header, bytes.data(), sizeof(header));
  const size_t begin = sizeof(header) + header;
  if (bytes.size() < begin) return {};
  std::vector<float> weights((bytes.size() - begin) / sizeof(float));
  std::memcpy(weights.data(), bytes.data() + begin,
              weights.size() * sizeof(float));
  return weights;
}

TEST(Rounds, UnevenSharesTrainAsOneProcessWithAllSamples) {
  const Mesh mesh(3);
  const std::string file = JobFile(mesh, 12, "");

  const nlohmann::json alone =
      mesh.Submit(file, {"aggregation.mode=none", "pipeline.stages=1"});
  const nlohmann::json shared = mesh.Submit(
      file, {"aggregation.workers=[w1,w2,w3]", "aggregation.shares=[5,3,2]",
             "aggregation.min_parts=3"});

  EXPECT_NEAR(shared["evaluations"].back()["loss"].get<double>(),
              alone["evaluations"].back()["loss"].get<double>(), 1e-5);
  const std::vector<float> expected = WeightsOf(mesh, "1");
  EXPECT_THAT(expected, SizeIs(Gt(40'000)));
  EXPECT_THAT(WeightsOf(mesh, "2"), Pointwise(FloatNear(1e-5F), expected));
}

TEST(Rounds, ADrainedMemberLeavesWithoutALossAndComesBack) {
  const Mesh mesh(3);
  mesh.Detach(JobFile(mesh, 100'000, ""));
  Watch watch(mesh);
  ASSERT_TRUE(Eventually([&] { return watch.Look()["step"] > 5; }));

  EXPECT_EQ(mesh.Run({"node", "drain", "w2"}).exit_code, 0);
  EXPECT_TRUE(mesh.EventComes("w2 left")) << mesh.Events();
  EXPECT_EQ(mesh.Run({"node", "undrain", "w2"}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] {
    watch.Look();
    return mesh.Events().find("worker w2 joined") != std::string::npos;
  })) << mesh.Events();
  watch.ExpectNobodyDiverged();
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

}  // namespace
}  // namespace paceline
