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

std::string Write(const Mesh& mesh, const std::string& name,
                  const std::string& text) {
  const std::string path = mesh.folder() + "/" + name;
  WriteWholeFile(path, text);
  return path;
}

TEST(Inference, WritesThePredictionsOfTrainedWeights) {
  const Mesh mesh(3);
  const std::string train =
      Write(mesh, "train.yaml",
            std::string("model: {name: lenet}\n") + kData +
                "train: {steps: 3, batch: 16, micro_batch: 4}\n");
  const std::string weights = mesh.folder() + "/w.safetensors";
  const nlohmann::json trained = mesh.Json({"job", "submit", train});
  ASSERT_EQ(mesh.Run({"job", "export", "last", "-o", weights}).exit_code, 0);

  const std::string infer =
      Write(mesh, "infer.yaml",
            "kind: infer\nmodel: {name: lenet, weights: " + weights + "}\n" +
                kData + "infer: {micro_batch: 4}\n");
  const nlohmann::json one =
      mesh.Json({"job", "submit", infer, "--set", "pipeline.stages=1"});
  const nlohmann::json three =
      mesh.Json({"job", "submit", infer, "--set", "pipeline.stages=3"});

  EXPECT_EQ(one["state"], "succeeded") << one.dump(2);
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
      Write(mesh, "infer.yaml",
            std::string("kind: infer\nmodel: {name: lenet}\n") + kData +
                "infer: {micro_batch: 4}\n"
                "pipeline: {cuts: [3], workers: [w3, w1, w2], "
                "replicas: [1, 2], shares: [1, 1, 3]}\n");
  const nlohmann::json one =
      mesh.Json({"job", "submit", infer, "--set", "pipeline.cuts=", "--set",
                 "pipeline.workers=", "--set", "pipeline.replicas=", "--set",
                 "pipeline.shares=", "--set", "pipeline.stages=1"});
  const nlohmann::json shared = mesh.Json({"job", "submit", infer});

  EXPECT_EQ(shared["state"], "succeeded") << shared.dump(2);
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

  const nlohmann::json tiny =
      mesh.Json({"job", "submit", infer, "--set", "infer.samples=4"});
  EXPECT_EQ(tiny["state"], "succeeded") << tiny.dump(2);
}

// Without cuts of its own the policy may share stages out, and does so on
// workers that are alike.
TEST(Inference, SharesAStageOutWhereThatIsFastest) {
  const Mesh mesh(3);
  const std::string infer =
      Write(mesh, "infer.yaml",
            std::string("kind: infer\nmodel: {name: mlp, hidden: []}\n") +
                kData + "infer: {micro_batch: 4}\n");
  const nlohmann::json many = mesh.Json({"job", "submit", infer});
  EXPECT_EQ(many["state"], "succeeded") << many.dump(2);
  EXPECT_GT(many["workers"].size(), many["stages"].get<size_t>());

  const Finished train =
      mesh.Run({"job", "submit", infer, "--set", "kind=train", "--set",
                "pipeline.replicate=allowed"});
  EXPECT_EQ(train.exit_code, 2);
  EXPECT_THAT(train.errors, HasSubstr("pipeline.replicate: belongs to kind"));
}

// A worker then runs several stages that do not follow each other.
TEST(Inference, GivesTheSamePredictionsWithMoreStagesThanWorkers) {
  const Mesh mesh(2);
  const std::string infer =
      Write(mesh, "infer.yaml",
            std::string("kind: infer\nmodel: {name: lenet}\n") + kData +
                "infer: {micro_batch: 4}\npipeline: {policy: equal}\n");
  const nlohmann::json one =
      mesh.Json({"job", "submit", infer, "--set", "pipeline.stages=1"});
  const nlohmann::json five =
      mesh.Json({"job", "submit", infer, "--set", "pipeline.stages=5"});

  EXPECT_EQ(five["state"], "succeeded") << five.dump(2);
  EXPECT_EQ(five["stages"], 5);
  EXPECT_EQ(five["workers"].size(), 2u) << five.dump(2);
  EXPECT_EQ(five["weights_sha256"], one["weights_sha256"]);
  EXPECT_EQ(five["test_accuracy"], one["test_accuracy"]);
}

TEST(Inference, ThatCannotBeIsAUsageErrorThatSaysWhy) {
  const Mesh mesh(1);
  const std::string file =
      Write(mesh, "bad.yaml",
            std::string("kind: predict\nmodel: {name: lenet}\n") + kData);
  const Finished kind = mesh.Run({"job", "submit", file});
  EXPECT_EQ(kind.exit_code, 2);
  EXPECT_THAT(kind.errors, HasSubstr("kind"));

  const Finished batch = mesh.Run({"job", "submit", file, "--set", "kind=infer",
                                   "--set", "infer.micro_batch=0"});
  EXPECT_EQ(batch.exit_code, 2);
  EXPECT_THAT(batch.errors, HasSubstr("infer.micro_batch"));

  const Finished schedule =
      mesh.Run({"job", "submit", file, "--set", "kind=infer", "--set",
                "pipeline.schedule=pipedream"});
  EXPECT_EQ(schedule.exit_code, 2);
  EXPECT_THAT(schedule.errors, HasSubstr("is a way to train"));
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

TEST(Bench, OfAnUnknownModelOrPolicyIsAUsageError) {
  const Mesh mesh(1);
  const Finished model = mesh.Run({"bench", "infer", "--model", "lenett"});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.errors, HasSubstr("lenet"));
  const Finished policy =
      mesh.Run({"bench", "infer", "--model", "lenet", "--policy", "mincut"});
  EXPECT_EQ(policy.exit_code, 2);
  EXPECT_THAT(policy.errors, HasSubstr("min-cut"));
}

}  // namespace
}  // namespace paceline
