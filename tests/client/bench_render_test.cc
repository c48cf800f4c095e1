#include "client/bench/bench_render.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

BenchRow Row() {
  BenchRow row;
  row.stages = 4;
  row.policy = "dp";
  row.workers = 4;
  row.plan = "[0,7) a, [7,12) b";
  row.seconds = 32;
  row.throughput = 12;
  row.speedup = 3.6;
  row.bound = 3.75;
  row.drift = 0.01;
  row.latency_p50 = 1.25;
  row.latency_p99 = 2.5;
  row.losses = {0.03, 0.02, 0.015, 0.025, 0.01};
  return row;
}

BenchOptions Options() {
  BenchOptions options;
  options.model = "deit";
  return options;
}

TEST(BenchDocument, HasTheDocumentedKeys) {
  const json document = json::parse(BenchDocument(Options(), {Row()}).ToJson());

  EXPECT_EQ(document, json::parse(R"({
    "model": "deit", "micro_batch": 4, "micro_batches": 96,
    "rows": [{
      "stages": 4, "policy": "dp", "schedule": null, "workers": 4,
      "plan": "[0,7) a, [7,12) b", "seconds": 32.0, "throughput": 12.0,
      "speedup": 3.6, "bound": 3.75, "drift": 0.01,
      "latency_p50_seconds": 1.25, "latency_p99_seconds": 2.5,
      "losses": {"fill": 0.03, "imbalance": 0.02, "transfer": 0.015,
                 "slowdown": 0.025, "unexplained": 0.01}
    }]
  })"));
}

TEST(BenchDocument, NamesTheScheduleOfTraining) {
  BenchRow row = Row();
  row.schedule = "1f1b";

  const json document = json::parse(BenchDocument(Options(), {row}).ToJson());

  EXPECT_EQ(document["rows"][0]["schedule"], "1f1b");
}

TEST(RenderBench, ShowsARowsNumbersUnderTheirNames) {
  const std::string table = RenderBench({Row()});

  for (const char* heading :
       {"SAMPLES/S", "SPEEDUP", "BOUND", "OF BOUND %", "P50 MS", "P99 MS",
        "FILL %", "IMBALANCE %", "TRANSFER %", "SLOWDOWN %", "OTHER %"}) {
    EXPECT_THAT(table, HasSubstr(heading));
  }
  for (const char* cell : {"3.60", "3.75", "96.0", "1250.0", "2500.0", "3.0",
                           "2.0", "1.5", "2.5", "1.0", "[0,7) a"}) {
    EXPECT_THAT(table, HasSubstr(cell));
  }
}

TEST(RenderBench, ALatencyThatIsNotKnownIsNone) {
  BenchRow row = Row();
  row.latency_p50 = row.latency_p99 = 0;

  const std::string table = RenderBench({row});

  EXPECT_THAT(table, HasSubstr("-"));
  EXPECT_THAT(table, Not(HasSubstr("1250.0")));
  const auto document =
      json::parse(BenchDocument(BenchOptions(), {row}).ToJson());
  EXPECT_TRUE(document["rows"][0]["latency_p50_seconds"].is_null());
  EXPECT_TRUE(document["rows"][0]["latency_p99_seconds"].is_null());
}

}  // namespace
}  // namespace paceline
