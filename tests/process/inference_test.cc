// Inference jobs, and the bench of them, on real processes.

#include <filesystem>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr char kData[] =
    "data: {name: synthetic, shape: [1, 28, 28], classes: 10, "
    "train_samples: 64, test_samples: 50}\n";

// An inference job of this model on kData, with `more` lines.
std::string InferFile(const Mesh& mesh, const std::string& model,
                      const std::string& more = "") {
  return mesh.Write("kind: infer\nmodel: " + model + "\n" + kData +
                        "infer: {micro_batch: 4}\n" + more,
                    "infer.yaml");
}

TEST(Inference, WritesThePredictionsOfTrainedWeights) {
  const Mesh mesh(3);
  const std::string train =
      mesh.Write(std::string("model: {name: lenet}\n") + kData +
                 "train: {steps: 3, batch: 16, micro_batch: 4}\n");
  const nlohmann::json trained = mesh.Submit(train);
  const std::string weights = mesh.Export();

  const std::string infer =
      InferFile(mesh, "{name: lenet, weights: " + weights + "}");
  const nlohmann::json one = mesh.Submit(infer, {"pipeline.stages=1"});
  const nlohmann::json three = mesh.Submit(infer, {"pipeline.stages=3"});

  EXPECT_EQ(one["kind"], "infer");
  EXPECT_EQ(one["test_accuracy"], trained["test_accuracy"]);
  EXPECT_EQ(one["steps"], 13) << "micro-batches";
  EXPECT_EQ(three["weights_sha256"], one["weights_sha256"]);
  EXPECT_GT(three["latency_seconds"]["p50"].get<double>(), 0);
  for (const nlohmann::json& worker : three["workers"]) {
    EXPECT_EQ(worker["flow"]["samples"], 50) << worker.dump(2);
    EXPECT_GT(worker["flow"]["compute"].get<double>(), 0);
  }

  const std::string file = mesh.folder() + "/predictions.safetensors";
  const Finished exported = mesh.Run({"job", "export", "last", "-o", file});
  ASSERT_EQ(exported.exit_code, 0) << exported.errors;
  const Finished inspected = mesh.Run({"model", "inspect", file});
  EXPECT_THAT(inspected.output, HasSubstr("classes"));
  EXPECT_THAT(inspected.output, HasSubstr("[50, 10]"));
  EXPECT_THAT(mesh.Run({"job", "show", "last"}).output,
              HasSubstr("predictions:"));
}

// Stages of one and of two workers, unevenly shared; then fewer micro-batches
// than turns.
TEST(Inference, GivesTheSamePredictionsWhereReplicasShareAStage) {
  const Mesh mesh(3);
  const std::string infer =
      InferFile(mesh, "{name: lenet}",
                "pipeline: {cuts: [3], workers: [w3, w1, w2], "
                "replicas: [1, 2], shares: [1, 1, 3]}\n");
  const nlohmann::json one = mesh.Submit(
      infer, {"pipeline.cuts=", "pipeline.workers=", "pipeline.replicas=",
              "pipeline.shares=", "pipeline.stages=1"});
  const nlohmann::json shared = mesh.Submit(infer);

  EXPECT_EQ(shared["weights_sha256"], one["weights_sha256"]);
  EXPECT_EQ(shared["test_accuracy"], one["test_accuracy"]);
  EXPECT_EQ(shared["step"], 13);
  std::map<std::string, int> micro_batches;
  for (const nlohmann::json& worker : shared["workers"]) {
    micro_batches[worker["name"]] = worker["flow"]["micro_batches"];
  }
  // Turns 2 1 2 2 and so on.
  EXPECT_EQ(micro_batches["w3"], 13);
  EXPECT_EQ(micro_batches["w1"], 3);
  EXPECT_EQ(micro_batches["w2"], 10);

  mesh.Submit(infer, {"infer.samples=4"});
}

// Without cuts of its own the policy may share stages out, and does so on
// workers that are alike.
TEST(Inference, SharesAStageOutWhereThatIsFastest) {
  const Mesh mesh(3);
  const std::string infer = InferFile(mesh, "{name: mlp, hidden: []}");
  const nlohmann::json many = mesh.Submit(infer);
  EXPECT_GT(many["workers"].size(), many["stages"].get<size_t>());
}

// A worker then runs several stages that do not follow each other.
TEST(Inference, GivesTheSamePredictionsWithMoreStagesThanWorkers) {
  const Mesh mesh(2);
  const std::string infer =
      InferFile(mesh, "{name: lenet}", "pipeline: {policy: equal}\n");
  const nlohmann::json one = mesh.Submit(infer, {"pipeline.stages=1"});
  const nlohmann::json five = mesh.Submit(infer, {"pipeline.stages=5"});

  EXPECT_EQ(five["stages"], 5);
  EXPECT_EQ(five["workers"].size(), 2u) << five.dump(2);
  EXPECT_EQ(five["weights_sha256"], one["weights_sha256"]);
  EXPECT_EQ(five["test_accuracy"], one["test_accuracy"]);
}

TEST(Bench, ComparesStagesWithOneWorkerAndSaysWhereTheRestGoes) {
  const Mesh mesh(2);
  const nlohmann::json bench = mesh.Json(
      {"bench", "infer", "--model", "lenet", "--stages", "1,2", "--policy",
       "dp,equal", "--micro-batch", "8", "--micro-batches", "40"});

  ASSERT_EQ(bench["rows"].size(), 3u) << bench.dump(2);
  EXPECT_EQ(bench["rows"][0]["stages"], 1);
  EXPECT_EQ(bench["rows"][0]["speedup"], 1.0);
  EXPECT_NEAR(bench["rows"][0]["bound"].get<double>(), 1, 1e-9);
  EXPECT_EQ(bench["rows"][2]["policy"], "equal");
  for (const nlohmann::json& row : bench["rows"]) {
    const nlohmann::json& losses = row["losses"];
    const double sum =
        losses["fill"].get<double>() + losses["imbalance"].get<double>() +
        losses["transfer"].get<double>() + losses["slowdown"].get<double>() +
        losses["unexplained"].get<double>();
    EXPECT_NEAR(
        row["speedup"].get<double>() / row["workers"].get<double>() + sum, 1,
        1e-6)
        << row.dump(2);
    EXPECT_GT(row["throughput"].get<double>(), 0);
    // Below 1 where the second worker measured itself as that much slower.
    EXPECT_GT(row["bound"].get<double>(), 0) << row.dump(2);
    EXPECT_GE(losses["fill"].get<double>(), 0);
    EXPECT_GE(losses["imbalance"].get<double>(), 0);
    EXPECT_GE(losses["transfer"].get<double>(), 0);
  }
  EXPECT_EQ(mesh.Json({"job", "list"})["jobs"].size(), 0u)
      << "what ran for a bench is no one's job";
}

TEST(Bench, OfTrainingHasARowForEverySchedule) {
  const Mesh mesh(2);
  const nlohmann::json bench = mesh.Json(
      {"bench", "train", "--model", "lenet", "--stages", "2", "--schedule",
       "zero-bubble,pipedream", "--micro-batch", "4", "--micro-batches", "8",
       "--steps", "4", "--no-profile", "--set", "pipeline.vertical_sync=true"});

  ASSERT_EQ(bench["rows"].size(), 4u) << bench.dump(2);
  EXPECT_EQ(bench["rows"][1]["schedule"], "zero-bubble");
  EXPECT_EQ(bench["rows"][3]["schedule"], "pipedream");
  for (const nlohmann::json& row : bench["rows"]) {
    EXPECT_GT(row["speedup"].get<double>(), 0) << row.dump(2);
    EXPECT_GT(row["bound"].get<double>(), 0) << row.dump(2);
    EXPECT_GT(row["latency_p50_seconds"].get<double>(), 0) << row.dump(2);
    EXPECT_GE(row["latency_p99_seconds"], row["latency_p50_seconds"]);
  }
  EXPECT_GT(bench["rows"][1]["losses"]["fill"].get<double>(), 0);
}

TEST(Bench, ThatCannotBeFinishedIsNotBegun) {
  const Mesh mesh(2);

  const Finished bench = mesh.Run(
      {"bench", "train", "--model", "lenet", "--stages", "2,4", "--schedule",
       "1f1b,interleaved-1f1b", "--micro-batch", "4", "--micro-batches", "3",
       "--steps", "2", "--no-profile", "--keep-jobs"});

  EXPECT_EQ(bench.exit_code, 2) << bench.errors;
  EXPECT_THAT(bench.errors,
              HasSubstr("nothing was run: 4 stages, dp, interleaved-1f1b: "));
  EXPECT_THAT(bench.errors, HasSubstr("a multiple of 2"));
  EXPECT_EQ(mesh.Json({"job", "list"})["jobs"].size(), 0u);
}

}  // namespace
}  // namespace paceline
