// What one sees of a mesh: metrics, discovery, health.

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(
model: {name: lenet}
data: {name: synthetic, train_samples: 256, test_samples: 64}
train: {steps: 1000000, batch: 64, micro_batch: 16}
pipeline: {stages: 2}
)";

std::string StartJob(const Mesh& mesh) {
  const std::string path = mesh.folder() + "/job.yaml";
  WriteWholeFile(path, kJob);
  const nlohmann::json job = mesh.Json({"job", "submit", path, "--detach"});
  const std::string id = std::to_string(job["id"].get<int64_t>());
  EXPECT_TRUE(Eventually([&] {
    return mesh.Json({"job", "show", id})["step"].get<int64_t>() > 2;
  }));
  return id;
}

// http addresses of all that /sd finds.
std::vector<std::string> Discovered(const Mesh& mesh) {
  std::vector<std::string> targets;
  const nlohmann::json groups =
      nlohmann::json::parse(Mesh::Get(mesh.http(), "/sd"));
  for (const auto& group : groups) {
    for (const auto& target : group["targets"]) targets.push_back(target);
  }
  return targets;
}

TEST(Metrics, PromtoolAcceptsBothDaemonsWhileAJobRuns) {
  const Mesh mesh(2);
  StartJob(mesh);
  const std::vector<std::string> targets = Discovered(mesh);
  ASSERT_EQ(targets.size(), 3u) << "the coordinator and two workers";

  for (const std::string& target : targets) {
    const std::string file = mesh.folder() + "/metrics.txt";
    WriteWholeFile(file, Mesh::Get(target, "/metrics"));
    const Finished checked =
        RunCommand({"bash", "-c", "promtool check metrics < " + file});
    EXPECT_EQ(checked.exit_code, 0) << target << "\n"
                                    << checked.errors << checked.output;
  }
}

TEST(Metrics, ExplainNinetySevenPercentOfEveryWorkersTime) {
  const Mesh mesh(2);
  const std::string id = StartJob(mesh);
  mesh.Run({"job", "stop", id});

  const nlohmann::json job = mesh.Json({"job", "show", id});
  ASSERT_EQ(job["workers"].size(), 2u);
  for (const auto& worker : job["workers"]) {
    const auto& seconds = worker["seconds"];
    EXPECT_LT(seconds["unexplained"].get<double>(),
              0.03 * seconds["wall"].get<double>())
        << worker.dump(2);
  }
}

TEST(Metrics, BothDaemonsAreHealthyAndReady) {
  const Mesh mesh(1);

  for (const std::string& target : Discovered(mesh)) {
    EXPECT_EQ(Mesh::Get(target, "/healthz"), "ok\n") << target;
    EXPECT_EQ(Mesh::Get(target, "/readyz"), "ready\n") << target;
  }
}

// A real Prometheus, configured as dashboards/ does it, finds every daemon.
TEST(Metrics, PrometheusFindsAndScrapesTheWholeMesh) {
  const Mesh mesh(2);
  StartJob(mesh);
  const std::string config = mesh.folder() + "/prometheus.yml";
  std::string text = ReadWholeFile(std::string(PACELINE_SOURCE_DIR) +
                                   "/dashboards/prometheus.yml");
  const std::string usual = "localhost:7480";
  ASSERT_THAT(text, HasSubstr(usual));
  for (size_t at = text.find(usual); at != std::string::npos;
       at = text.find(usual, at + 1)) {
    text.replace(at, usual.size(), mesh.http());
  }
  WriteWholeFile(config, text);
  const std::string address = "127.0.0.1:" + FreePort();
  Child prometheus({"prometheus", "--config.file=" + config,
                    "--storage.tsdb.path=" + mesh.folder() + "/tsdb",
                    "--web.listen-address=" + address});

  const std::string query = "http://" + address + "/api/v1/query?query=up";
  std::string last;
  EXPECT_TRUE(Eventually(
      [&] {
        last = RunCommand({"curl", "-s", query}).output;
        const nlohmann::json answer =
            nlohmann::json::parse(last, nullptr, false);
        if (answer.is_discarded()) return false;
        int up = 0;
        for (const auto& one : answer["data"]["result"]) {
          up += one["value"][1] == "1";
        }
        return up == 3;
      },
      std::chrono::seconds(60)))
      << last << prometheus.errors();
}

}  // namespace
}  // namespace paceline
