// A mesh shows metrics, discovery and health.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

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
  const std::string id = mesh.Detach(mesh.Write(kJob));
  EXPECT_TRUE(mesh.StepPasses(2, id));
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

// A real Prometheus, configured as dashboards/ does it.
class Prometheus {
 public:
  explicit Prometheus(const Mesh& mesh) : address_("127.0.0.1:" + FreePort()) {
    const std::string dashboards =
        std::string(PACELINE_SOURCE_DIR) + "/dashboards/";
    std::string text = ReadWholeFile(dashboards + "prometheus.yml");
    const std::string usual = "localhost:7480";
    EXPECT_THAT(text, HasSubstr(usual));
    for (size_t at = text.find(usual); at != std::string::npos;
         at = text.find(usual, at + 1)) {
      text.replace(at, usual.size(), mesh.http());
    }
    WriteWholeFile(mesh.folder() + "/prometheus.yml", text);
    WriteWholeFile(mesh.folder() + "/alerts.yml",
                   ReadWholeFile(dashboards + "alerts.yml"));
    child_ = std::make_unique<Child>(std::vector<std::string>{
        "prometheus", "--config.file=" + mesh.folder() + "/prometheus.yml",
        "--storage.tsdb.path=" + mesh.folder() + "/tsdb",
        "--web.listen-address=" + address_});
  }

  // The answer's `data`; null while there is none.
  nlohmann::json Ask(const std::string& what) {
    last_ = RunCommand({"curl", "-s", "http://" + address_ + "/api/v1/" + what})
                .output;
    const nlohmann::json answer = nlohmann::json::parse(last_, nullptr, false);
    return answer.is_object() ? answer["data"] : nlohmann::json();
  }
  // Returns the value of an expression with one result; -1: it has none, or
  // several.
  double Value(const std::string& expression) {
    last_ = RunCommand({"curl", "-s", "-G", "--data-urlencode",
                        "query=" + expression,
                        "http://" + address_ + "/api/v1/query"})
                .output;
    const nlohmann::json answer = nlohmann::json::parse(last_, nullptr, false);
    if (!answer.is_object()) return -1;
    const nlohmann::json result = answer["data"]["result"];
    if (result.size() != 1) return -1;
    return std::stod(result[0]["value"][1].get<std::string>());
  }
  std::string last() const { return last_ + child_->errors(); }

 private:
  const std::string address_;
  std::unique_ptr<Child> child_;
  std::string last_;
};

constexpr std::chrono::seconds kSomeScrapes{60};

TEST(Metrics, PrometheusFindsAndScrapesTheWholeMesh) {
  const Mesh mesh(2);
  StartJob(mesh);
  Prometheus prometheus(mesh);

  EXPECT_TRUE(Eventually([&] { return prometheus.Value("sum(up)") == 3; },
                         kSomeScrapes))
      << prometheus.last();
}

constexpr char kGroupJob[] = R"(
model: {name: lenet}
data: {name: synthetic, train_samples: 256, test_samples: 64}
train: {steps: 1000000, batch: 48, micro_batch: 16, evaluate_every: 0}
aggregation: {mode: rolling}
faults: [{worker: w2, step: 30, kind: kill}]
)";

TEST(Metrics, PrometheusSeesRoundsAndWhyAKilledMembersPartWasSkipped) {
  const Mesh mesh(3);
  Prometheus prometheus(mesh);
  mesh.Detach(mesh.Write(kGroupJob));
  const std::string rounds =
      "sum(paceline_worker_rounds_total{outcome=\"committed\"})";

  EXPECT_TRUE(
      Eventually([&] { return prometheus.Value(rounds) > 0; }, kSomeScrapes))
      << prometheus.last();
  const double before = prometheus.Value(rounds);
  EXPECT_TRUE(Eventually([&] { return prometheus.Value(rounds) > before; },
                         kSomeScrapes))
      << prometheus.last();
  // Each is asked for until a scrape has brought it.
  for (const std::string& expression : std::vector<std::string>{
           "sum(paceline_worker_round_parts_skipped_total{reason=\"lost\"}) > "
           "0",
           "sum(paceline_coordinator_group_leavers_total{reason=\"lost\"}) > 0",
           "histogram_quantile(0.5, sum by (le) "
           "(rate(paceline_worker_round_seconds_bucket[30s]))) > 0",
           "min(paceline_worker_round_deadline_seconds) > 0",
           "max(paceline_worker_round_contributors) > 0",
           "sum(paceline_worker_round_bytes_total{direction=\"sent\"}) > 0",
           "paceline_coordinator_job_group_paused == bool 0",
           // It came back.
           "paceline_coordinator_job_group_members{state=\"member\"} == 3"}) {
    EXPECT_TRUE(Eventually([&] { return prometheus.Value(expression) > 0; },
                           kSomeScrapes))
        << expression << "\n"
        << prometheus.last();
  }
  for (const nlohmann::json& group : prometheus.Ask("rules")["groups"]) {
    for (const nlohmann::json& rule : group["rules"]) {
      EXPECT_EQ(rule["health"], "ok") << rule.dump(2);
    }
  }
}

}  // namespace
}  // namespace paceline
