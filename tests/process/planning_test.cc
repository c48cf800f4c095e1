// A mesh of real processes measures itself, and plans are made of that.

#include <unistd.h>

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(
name: planned
model: {name: lenet}
data: {name: synthetic, train_samples: 256, test_samples: 64}
train: {steps: 8, batch: 64, micro_batch: 16}
pipeline: {schedule: 1f1b}
)";

TEST(Planning, MeasuresEveryLayerOfEveryWorkerAndTheirLinks) {
  const Mesh mesh(2);

  const nlohmann::json profile =
      mesh.Json({"profile", "--model", "lenet", "--batch", "16", "--all"});

  ASSERT_EQ(profile["profiles"].size(), 2u) << profile.dump(2);
  for (const nlohmann::json& one : profile["profiles"]) {
    EXPECT_EQ(one["micro_batch"], 16);
    ASSERT_GT(one["layers"].size(), 3u);
    EXPECT_GT(one["layers"][0]["forward_seconds"].get<double>(), 0);
    EXPECT_GT(one["layers"].back()["backward_seconds"].get<double>(), 0);
    EXPECT_GT(one["frame_seconds"].get<double>(), 0);
  }
  ASSERT_EQ(profile["links"].size(), 2u) << profile.dump(2);
  EXPECT_GT(profile["links"][0]["bytes_per_second"].get<double>(), 1e6);
}

// Each once counted on all of it.
TEST(Planning, WorkersOfOneMachineShareItsMemory) {
  const Mesh mesh(2);

  int64_t bytes = 0;
  const nlohmann::json nodes = mesh.Json({"node", "list"});
  for (const nlohmann::json& node : nodes["workers"]) {
    bytes += node["memory_bytes"].get<int64_t>();
  }

  EXPECT_GT(bytes, 0);
  EXPECT_LE(bytes, int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

TEST(Planning, PlansAndRunsByWhatWasMeasured) {
  const Mesh mesh(2);
  const std::string file = mesh.Write(kJob);
  mesh.Json({"profile", "-f", file, "--all"});

  const nlohmann::json plan =
      mesh.Json({"plan", "-f", file, "--stages", "2", "--no-replicas"});
  const nlohmann::json job = mesh.Submit(file, {"pipeline.stages=2"});

  EXPECT_EQ(plan["stages"].size(), 2u) << plan.dump(2);
  EXPECT_GE(plan["step_seconds"].get<double>(),
            plan["lower_bound_seconds"].get<double>() * (1 - 1e-9));
  EXPECT_THAT(plan["source"].get<std::string>(), HasSubstr("measured on"));
  EXPECT_GT(job["predicted_step_seconds"].get<double>(), 0);
  EXPECT_GT(job["measured_step_seconds"].get<double>(), 0);
  ASSERT_EQ(job["drift"].size(), 2u);
  EXPECT_GT(job["drift"][1]["predicted_seconds"].get<double>(), 0);
  EXPECT_GT(job["drift"][1]["measured_seconds"].get<double>(), 0);
}

TEST(Planning, APlanFileDecidesWhoHoldsWhichStage) {
  const Mesh mesh(3);
  const std::string file = mesh.Write(kJob);
  const std::string plan_path = mesh.folder() + "/plan.json";
  mesh.Json({"plan", "-f", file, "--stages", "2", "--no-replicas", "--save",
             plan_path});
  // The last worker first: what the order of the workers would not give.
  nlohmann::json plan = nlohmann::json::parse(ReadWholeFile(plan_path));
  plan["placement"][0]["devices"] = {2};
  plan["placement"][1]["devices"] = {0};
  WriteWholeFile(plan_path, plan.dump());

  const Finished overruled = mesh.TrySubmit(file, {"pipeline.stages=3"},
                                            {"--plan", plan_path, "--dry-run"});
  EXPECT_EQ(overruled.exit_code, 0) << overruled.errors;
  EXPECT_THAT(overruled.errors,
              HasSubstr("--set pipeline.stages has no effect: --plan says"));

  const nlohmann::json job =
      mesh.Json({"job", "submit", file, "--plan", plan_path});

  ASSERT_EQ(job["workers"].size(), 2u);
  const auto& devices = plan["problem"]["devices"];
  const nlohmann::json nodes = mesh.Json({"node", "list"});
  std::map<int64_t, std::string> names;
  for (const auto& node : nodes["workers"]) names[node["id"]] = node["name"];
  for (const auto& worker : job["workers"]) {
    const int stage = worker["stages"][0];
    const std::string device = devices[stage == 0 ? 2 : 0]["name"];
    EXPECT_EQ(names[worker["id"]], device) << job.dump(2);
  }
}

TEST(Planning, ExportsPredictedBesideMeasured) {
  const Mesh mesh(1);
  const std::string file = mesh.Write(kJob);
  const auto job =
      mesh.Start({"job", "submit", file, "--set", "train.steps=100000"});

  std::string metrics;
  const bool both = Eventually([&] {
    metrics = Mesh::Get(mesh.http(), "/metrics");
    return metrics.find("job_step_measured_seconds{") != std::string::npos &&
           metrics.find("job_stage_measured_seconds{") != std::string::npos;
  });

  EXPECT_TRUE(both) << metrics;
  EXPECT_THAT(metrics, HasSubstr("job_step_predicted_seconds{"));
  EXPECT_THAT(metrics, HasSubstr("job_stage_predicted_seconds{"));
  mesh.Json({"job", "stop", "last"});
}

TEST(Planning, LinksAreProbedWhenAWorkerJoins) {
  const Mesh mesh(2);
  const std::string file = mesh.Write(kJob);

  // Nobody asked for a profile: the links were measured at the start.
  const bool measured = Eventually([&] {
    const nlohmann::json plan =
        mesh.Json({"plan", "-f", file, "--stages", "2", "--no-replicas"});
    return plan["source"].get<std::string>().find("links that were not") ==
           std::string::npos;
  });

  EXPECT_TRUE(measured);
}

TEST(Planning, ADryRunSaysWhatAStepWouldTake) {
  const Mesh mesh(1);
  const std::string file = mesh.Write(kJob);

  const nlohmann::json dry = mesh.Json({"job", "submit", file, "--dry-run"});

  EXPECT_GT(dry["estimate"]["step_seconds"].get<double>(), 0) << dry.dump(2);
  EXPECT_THAT(dry["estimate"]["source"].get<std::string>(),
              HasSubstr("assumed from FLOPs"));
}

}  // namespace
}  // namespace paceline
