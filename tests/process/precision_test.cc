// Precision and memory over real processes.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr char kLenet[] = R"(
name: lenet
model: {name: lenet}
data: {name: synthetic, train_samples: 512, test_samples: 64}
train: {steps: 8, batch: 256, micro_batch: 32}
pipeline: {stages: 2, schedule: gpipe}
)";

constexpr char kVit[] = R"(
name: vit
model: {name: vit, depth: 4, width: 64, heads: 4}
data: {name: synthetic, train_samples: 512, test_samples: 64}
train: {steps: 4, batch: 256, micro_batch: 32, optimizer: {name: adamw}}
pipeline: {stages: 2, schedule: gpipe}
)";

// Predicted and measured lie within this factor of each other.
constexpr double kFactor = 2;

nlohmann::json Submitted(const Mesh& mesh, const char* text,
                         const std::string& set) {
  nlohmann::json job = mesh.Submit(mesh.Write(text), {set});
  EXPECT_EQ(job["state"], "succeeded") << job.dump(2);
  for (const nlohmann::json& worker : job["workers"]) {
    const double predicted = worker["predicted_memory_bytes"].get<double>();
    const double peak = worker["peak_memory_bytes"].get<double>();
    EXPECT_LT(peak, kFactor * predicted) << set << worker.dump(2);
    EXPECT_GT(peak, predicted / kFactor) << set << worker.dump(2);
  }
  return job;
}

TEST(Memory, PeakOfEveryWorkerIsAboutWhatThePlannerPredicted) {
#ifndef PACELINE_WITH_TORCH
  GTEST_SKIP() << "the engine without LibTorch computes nothing once more";
#endif
  const Mesh mesh(2);
  for (const char* text : {kLenet, kVit}) {
    const nlohmann::json none =
        Submitted(mesh, text, "train.activation_checkpointing=none");
    const nlohmann::json stage =
        Submitted(mesh, text, "train.activation_checkpointing=stage");

    EXPECT_EQ(stage["weights_sha256"], none["weights_sha256"]);
    for (int i = 0; i < 2; ++i) {
      EXPECT_LT(stage["workers"][i]["peak_memory_bytes"],
                none["workers"][i]["peak_memory_bytes"]);
    }
  }
}

TEST(Bf16, EndsWithTheSameBytesInOneStageAndTwo) {
  const Mesh mesh(2);
  const std::string path = mesh.Write(kVit);
  const auto submit = [&](const std::string& stages) {
    return mesh.Submit(path, {"precision=bf16", "pipeline.stages=" + stages});
  };

  const nlohmann::json one = submit("1");
  const nlohmann::json two = submit("2");

  EXPECT_EQ(one["state"], "succeeded") << one.dump(2);
  EXPECT_EQ(two["weights_sha256"], one["weights_sha256"]) << two.dump(2);
  EXPECT_EQ(two["cpu_capability"], one["cpu_capability"]);
}

// The file's float32 weights are the master weights of the run.
TEST(Bf16, BeginsAtTheWeightsOfAFileAndInfersWithThem) {
  const Mesh mesh(2);
  const std::string path = mesh.Write(kVit);
  const nlohmann::json trained = mesh.Submit(path);
  const std::string weights = mesh.Export();
  const auto submit = [&](const std::vector<std::string>& sets) {
    return mesh.Submit(path, sets);
  };
  const std::string from = "model.weights=" + weights;
  const auto first_loss = [&](const nlohmann::json& job) {
    const std::string id = std::to_string(job["id"].get<int>());
    return mesh.Job(id)["loss"][0]["value"].get<double>();
  };
  const auto test_loss = [](const nlohmann::json& job) {
    return job["evaluations"].back()["loss"].get<double>();
  };

  const nlohmann::json anew = submit({"precision=bf16"});
  const nlohmann::json on = submit({"precision=bf16", from});
  const nlohmann::json fp32 = submit({"kind=infer", from});
  const nlohmann::json bf16 = submit({"kind=infer", from, "precision=bf16"});
  const nlohmann::json alone =
      submit({"kind=infer", from, "precision=bf16", "pipeline.stages=1"});

  EXPECT_LT(first_loss(on), first_loss(anew)) << "it does not begin anew";
  EXPECT_NEAR(test_loss(fp32), test_loss(trained), 1e-5);
  EXPECT_NEAR(test_loss(bf16), test_loss(fp32), 0.02) << bf16.dump(2);
  EXPECT_NE(bf16["weights_sha256"], fp32["weights_sha256"]);
  EXPECT_EQ(bf16["weights_sha256"], alone["weights_sha256"]);
}

TEST(Bf16, ProfilesAreOfTheJobsPrecision) {
  const Mesh mesh(1);

  const nlohmann::json profile =
      mesh.Json({"profile", "--model", "lenet", "--batch", "16", "--set",
                 "precision=bf16"});

  ASSERT_EQ(profile["profiles"].size(), 1u) << profile.dump(2);
  EXPECT_EQ(profile["profiles"][0]["dtype"], "bf16");
}

}  // namespace
}  // namespace paceline
