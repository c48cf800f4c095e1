// A mesh of real processes trains, and its numbers do not depend on how.

#include <map>
#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Twelve steps; the fifth batch of each epoch is a short one.
constexpr char kLenetJob[] = R"(
name: small-lenet
model: {name: lenet}
data: {name: synthetic, train_samples: 300, test_samples: 100}
train:
  steps: 12
  batch: 64
  micro_batch: 12
  optimizer: {name: sgd, momentum: 0.9}
  learning_rate: {base: 0.01}
pipeline: {stages: 1, schedule: 1f1b}
)";

constexpr char kVitJob[] = R"(
name: small-vit
model: {name: vit, depth: 2, width: 16, heads: 2, dropout: 0.1}
data: {name: synthetic, train_samples: 100, test_samples: 30}
train:
  steps: 6
  batch: 24
  micro_batch: 7
  clip_norm: 0.5
  optimizer: {name: adamw, weight_decay: 0.01}
  learning_rate: {base: 0.003, schedule: cosine, warmup_steps: 2}
pipeline: {stages: 1, schedule: 1f1b}
)";

nlohmann::json Submit(const Mesh& mesh, const std::string& file, int stages,
                      const std::string& schedule) {
  return mesh.Submit(file, {"pipeline.stages=" + std::to_string(stages),
                            "pipeline.schedule=" + schedule});
}

class SameBytes : public ::testing::TestWithParam<const char*> {};

TEST_P(SameBytes, AtAnyNumberOfStagesAndInEverySynchronousSchedule) {
  const Mesh mesh(4);
  const std::string file = mesh.Write(GetParam());

  std::set<std::string> hashes;
  std::set<std::string> curves;
  for (int stages = 1; stages <= 4; ++stages) {
    for (const char* schedule :
         {"gpipe", "1f1b", "zero-bubble", "interleaved-1f1b"}) {
      const nlohmann::json job = Submit(mesh, file, stages, schedule);
      EXPECT_EQ(job["step"], job["steps"]);
      EXPECT_EQ(job["weights_sha256"].get<std::string>().size(), 64u);
      hashes.insert(job["weights_sha256"]);
      curves.insert(job["loss"].dump());
    }
  }

  EXPECT_EQ(hashes.size(), 1u);
  EXPECT_EQ(curves.size(), 1u);
}

// Four stages on two workers, dealt out in turn; three would not be.
TEST(Interleaved, GivesEveryWorkerSeveralStages) {
  const Mesh mesh(3);

  const nlohmann::json job =
      Submit(mesh, mesh.Write(kLenetJob), 4, "interleaved-1f1b");

  ASSERT_EQ(job["workers"].size(), 2u) << job.dump(2);
  EXPECT_EQ(job["workers"][0]["stages"], nlohmann::json({0, 2}));
  EXPECT_EQ(job["workers"][1]["stages"], nlohmann::json({1, 3}));
}

constexpr char kPipedreamJob[] = R"(
name: streamed-lenet
model: {name: lenet}
data: {name: synthetic, train_samples: 600, test_samples: 200}
train:
  epochs: 4
  batch: 60
  micro_batch: 12
  optimizer: {name: sgd, momentum: 0.5}
  learning_rate: {base: 0.01, schedule: cosine, warmup_steps: 20}
pipeline: {stages: 4, schedule: pipedream}
)";

// One stage updates after every micro-batch too, and has nothing to be late
// with: four stages learn about as well.
TEST(Pipedream, LearnsAndShowsHowStaleItsGradientsAre) {
  const Mesh mesh(4);
  const std::string file = mesh.Write(kPipedreamJob);
  const nlohmann::json one = Submit(mesh, file, 1, "pipedream");
  for (const bool vertical_sync : {false, true}) {
    const nlohmann::json job =
        mesh.Submit(file, {std::string("pipeline.vertical_sync=") +
                           (vertical_sync ? "true" : "false")});

    EXPECT_EQ(job["step"], 40);
    ASSERT_EQ(job["loss"].size(), 40u);
    EXPECT_LT(job["loss"][39]["value"].get<double>(),
              0.5 * job["loss"][0]["value"].get<double>());
    EXPECT_GT(job["test_accuracy"].get<double>(),
              one["test_accuracy"].get<double>() - 0.1);
    EXPECT_EQ(job["evaluations"].size(), 4u);
    ASSERT_EQ(job["versions"].size(), 4u) << job.dump(2);
    int64_t bytes = 0;  // a stage may have no weights
    for (int stage = 0; stage < 4; ++stage) {
      const auto& versions = job["versions"][stage];
      const int ahead = vertical_sync ? 3 : 3 - stage;
      EXPECT_EQ(versions["updates"], 200);
      EXPECT_EQ(versions["versions"], ahead + 1);
      // A stream an epoch, each of 50 updates; it begins fresh.
      const double late = ahead * (ahead - 1) / 2.0 + (50.0 - ahead) * ahead;
      EXPECT_NEAR(versions["staleness"].get<double>(), late / 50, 1e-9);
      bytes += versions["version_bytes"].get<int64_t>();
    }
    EXPECT_GT(bytes, 0);
  }
  const Finished shown = mesh.Run({"job", "show", "last"});
  EXPECT_THAT(shown.output, HasSubstr("staleness"));
}

INSTANTIATE_TEST_SUITE_P(Models, SameBytes,
                         ::testing::Values(kLenetJob, kVitJob));

class MeshOfFour : public ::testing::Test {
 protected:
  Mesh mesh_{4};
};

TEST_F(MeshOfFour, TellsEverythingOfAJobAsJson) {
  const nlohmann::json submitted =
      Submit(mesh_, mesh_.Write(kLenetJob), 4, "1f1b");
  const std::string id = std::to_string(submitted["id"].get<int64_t>());

  const nlohmann::json job = mesh_.Job(id);

  EXPECT_EQ(job["steps"], 12);
  ASSERT_EQ(job["loss"].size(), 12u);
  EXPECT_EQ(job["loss"][0]["step"], 1);
  EXPECT_TRUE(job["loss"][0]["value"].is_number());
  EXPECT_TRUE(job["test_accuracy"].is_number());
  const nlohmann::json listed = mesh_.Json({"job", "list"});
  EXPECT_EQ(listed["jobs"][0]["test_accuracy"], job["test_accuracy"]);
  EXPECT_EQ(job["threads"], 1);
  EXPECT_TRUE(job["cpu_capability"].is_string());
  ASSERT_EQ(job["workers"].size(), 4u);
  for (const auto& worker : job["workers"]) {
    const auto& seconds = worker["seconds"];
    double sum = 0;
    for (const char* part :
         {"forward", "backward", "send", "receive_wait", "aggregate",
          "optimizer", "snapshot", "data", "orders", "unexplained"}) {
      sum += seconds[part].get<double>();
    }
    EXPECT_NEAR(sum, seconds["wall"].get<double>(), 1e-6) << worker.dump();
    EXPECT_GT(seconds["forward"].get<double>(), 0) << worker.dump();
  }
}

TEST_F(MeshOfFour, RunsSeveralStagesOnAWorkerAndSaysSo) {
  const Finished finished =
      mesh_.TrySubmit(mesh_.Write(kLenetJob), {"pipeline.stages=6"});

  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_THAT(finished.errors + finished.output, HasSubstr("6 stages"));
}

double MetricOf(const Mesh& mesh, const std::string& name) {
  double sum = 0;
  const nlohmann::json groups =
      nlohmann::json::parse(Mesh::Get(mesh.http(), "/sd"));
  for (const auto& group : groups) {
    for (const std::string target : group["targets"]) {
      std::istringstream lines(Mesh::Get(target, "/metrics"));
      for (std::string line; std::getline(lines, line);) {
        if (line.rfind(name, 0) != 0) continue;
        sum += std::stod(line.substr(line.rfind(' ')));
      }
    }
  }
  return sum;
}

TEST_F(MeshOfFour, ACodecSendsFewerBytesAndTrainsNearlyTheSame) {
  const std::string file = mesh_.Write(kVitJob);
  constexpr char kBytes[] =
      "paceline_worker_frame_bytes_total{direction=\"sent\"";
  constexpr char kError[] = "paceline_worker_codec_error_ratio";
  std::map<std::string, double> bytes, loss;
  std::set<std::string> hashes;
  for (const std::string codec : {"fp32", "bf16", "fp16", "int8"}) {
    const double before = MetricOf(mesh_, kBytes);
    const nlohmann::json job =
        mesh_.Submit(file, {"pipeline.stages=2", "pipeline.codec=" + codec});
    bytes[codec] = MetricOf(mesh_, kBytes) - before;
    loss[codec] = job["loss"].back()["value"];
    hashes.insert(job["weights_sha256"].get<std::string>());
    const double error = MetricOf(mesh_, kError);
    EXPECT_EQ(error > 0, codec != "fp32") << codec;
    EXPECT_LT(error, 0.05) << codec;
  }

  EXPECT_EQ(hashes.size(), 4u);
  // Labels are never made smaller, and int8 has its scales.
  EXPECT_LT(bytes["bf16"], 0.51 * bytes["fp32"]);
  EXPECT_EQ(bytes["bf16"], bytes["fp16"]);
  EXPECT_LT(bytes["int8"], 0.55 * bytes["bf16"]);
  for (const auto& [codec, value] : loss) {
    EXPECT_NEAR(value, loss["fp32"], 0.02 * loss["fp32"]) << codec;
  }
}

TEST_F(MeshOfFour, QueuesASecondJobAndRunsItAfterTheFirst) {
  const std::string file = mesh_.Write(kLenetJob);
  const std::string first =
      mesh_.Detach(file, {"pipeline.stages=4", "train.steps=60"});
  const nlohmann::json second = mesh_.Submit(file, {"pipeline.stages=4"});

  EXPECT_EQ(mesh_.Job(first)["state"], "succeeded");
}

// Between jobs a worker becomes another process image under the same pid.
TEST_F(MeshOfFour, ExecutesItselfAnewForAnotherCpuCapability) {
  const pid_t before = mesh_.pid_of_worker("w2");
  const std::string file = mesh_.Write(kLenetJob);

  const nlohmann::json low =
      mesh_.Submit(file, {"cpu_capability=default", "pipeline.stages=4"});
  const nlohmann::json alone = mesh_.Submit(file, {"cpu_capability=default"});

  EXPECT_EQ(low["cpu_capability"], "default");
  EXPECT_EQ(low["weights_sha256"], alone["weights_sha256"]);
  EXPECT_EQ(mesh_.pid_of_worker("w2"), before);
  EXPECT_EQ(ReadWholeFile("/proc/" + std::to_string(before) + "/comm"),
            "paceline-worker\n");
}

TEST_F(MeshOfFour, TrainsOnAfterItsCoordinatorWasKilledAndCameBack) {
  const std::string id = mesh_.Detach(mesh_.Write(kLenetJob),
                                      {"pipeline.stages=4", "train.steps=400"});
  ASSERT_TRUE(mesh_.StepPasses(0, id));

  EXPECT_EQ(RunCommand({"pkill", "-KILL", "-f",
                        "paceline-coordinator.*" + mesh_.folder()})
                .exit_code,
            0);

  const Finished waited = mesh_.Run({"job", "wait", id});
  EXPECT_EQ(waited.exit_code, 0) << waited.errors << mesh_.log("coordinator");
  const nlohmann::json shown = mesh_.Job(id);
  EXPECT_EQ(shown["state"], "succeeded");
  EXPECT_EQ(shown["loss"].size(), 400u) << "records were lost";
}

}  // namespace
}  // namespace paceline
