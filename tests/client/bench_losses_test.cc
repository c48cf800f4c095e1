#include "client/bench/bench_commands.h"
#include "client/bench/losses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBegin = 1'700'000'000'000'000;

JobWorkerView Worker(int id, int stage, FlowTimes flow, double first_seconds,
                     double last_seconds) {
  JobWorkerView worker;
  worker.id = id;
  worker.name = std::string(1, static_cast<char>('a' + id));
  worker.stages = {{stage, stage, stage + 1, id, worker.name}};
  flow.micro_batches = 10;
  flow.samples = 40;
  flow.first_unix_us = kBegin + static_cast<int64_t>(first_seconds * 1e6);
  flow.last_unix_us = kBegin + static_cast<int64_t>(last_seconds * 1e6);
  worker.flow = flow;
  return worker;
}

// Two workers for 10 s: the first computes from 0 to 9, the second from 1 to
// 10 but for waits.
JobView TwoStages() {
  JobView job;
  job.id = 7;
  job.spec.kind = kInferKind;
  job.spec.pipeline.policy = "dp";
  job.drift = {{.stage = 0, .worker_id = 0, .layer_seconds = 0.9},
               {.stage = 1, .worker_id = 1, .layer_seconds = 0.6}};
  job.workers.push_back(Worker(0, 0, {.compute = 9, .compute_cpu = 3.6}, 0, 9));
  job.workers.push_back(Worker(1, 1,
                               {.compute = 6.5,
                                .compute_cpu = 2.4,
                                .other_cpu = 0.1,
                                .starved = 1.5,
                                .in_flight = 1,
                                .latency_p50 = 2,
                                .latency_p99 = 3},
                               1, 10));
  return job;
}

TEST(BenchLosses, AddUpToWhatIsMissing) {
  const absl::StatusOr<BenchRow> row =
      RowOf(TwoStages(), {.seconds = 1.5, .data = 0, .layers = 1.5},
            {{"a", 0.4}, {"b", 0.4}});

  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->stages, 2);
  EXPECT_EQ(row->workers, 2);
  EXPECT_DOUBLE_EQ(row->seconds, 10);
  EXPECT_DOUBLE_EQ(row->throughput, 4);
  EXPECT_DOUBLE_EQ(row->speedup, 1.5);
  EXPECT_NEAR(row->losses.fill, 2.0 / 20, 1e-9) << "a second at each end";
  EXPECT_NEAR(row->losses.imbalance, 1.5 / 20, 1e-9);
  // A second on its way; and compute was half a second longer than 2.4 / 0.4,
  // of which 0.1 / 0.4 can be other threads'.
  EXPECT_NEAR(row->losses.transfer, 1.25 / 20, 1e-9);
  EXPECT_NEAR(row->losses.unexplained, 1 - 0.75 - 4.75 / 20, 1e-9);
  EXPECT_DOUBLE_EQ(row->latency_p50, 2);
  EXPECT_EQ(row->plan, "[0,1) a, [1,2) b");
}

// The second worker saved CPU while it waited, and computed 2.8 CPU seconds, 7
// s at its share, in 6.5.
TEST(BenchLosses, WaitsThatAQuotaGivesBackAreNoLoss) {
  JobView job = TwoStages();
  job.workers[1].flow->compute_cpu = 2.8;
  const absl::StatusOr<BenchRow> row =
      RowOf(job, {.seconds = 1.5, .data = 0, .layers = 1.5},
            {{"a", 0.4}, {"b", 0.4}});

  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_NEAR(row->losses.imbalance, 0.8 * 1.5 / 20, 1e-9);
  EXPECT_NEAR(row->losses.transfer, 0.8 * 1 / 20, 1e-9);
}

// Both workers' layers took 6 CPU seconds of 10 micro-batches, which the one
// alone does in 4.8: a fifth.
TEST(BenchLosses, SlowdownIsWhatLayersTookBeyondOneWorkersCpu) {
  const absl::StatusOr<BenchRow> row = RowOf(
      TwoStages(), {.seconds = 1.5, .data = 0, .layers = 1.5, .cpu = 0.48},
      {{"a", 0.4}, {"b", 0.4}});

  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_NEAR(row->losses.slowdown, 0.2 * 6 / 0.4 / 20, 1e-9);
  EXPECT_NEAR(row->losses.unexplained,
              1 - 0.75 - 4.75 / 20 - row->losses.slowdown, 1e-9);
}

// "a" alone computes with 0.4 of a core; "b" has half of that, so that its 2.4
// CPU seconds last 12 s, not 6.
TEST(BenchLosses, ASmallerShareOfACoreIsSlowdownToo) {
  JobView job = TwoStages();
  const BenchBaseline one{
      .seconds = 1.5, .layers = 1.5, .cpu = 0.6, .worker = "a"};
  const auto alike = RowOf(job, one, {{"a", 0.4}, {"b", 0.39}});
  const auto half = RowOf(job, one, {{"a", 0.4}, {"b", 0.2}});

  ASSERT_TRUE(alike.ok()) << alike.status();
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_NEAR(alike->losses.slowdown, 0, 1e-9);
  EXPECT_NEAR(half->losses.slowdown, (12.0 - 6.0) / 20, 1e-9);
}

TEST(BenchLosses, KnowsWhoWasAlone) {
  JobView job = TwoStages();
  job.workers.resize(1);
  job.drift.resize(1);

  const auto one = BaselineOf(job);

  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->worker, "a");
  EXPECT_EQ(one->layers, 0.9);
  EXPECT_EQ(MeanOf(*one, *one).worker, "a");
}

// The second stage's worker "b" has half of the micro-batches, "c" the others.
TEST(BenchLosses, OfReplicasCountEveryMicroBatchOnce) {
  JobView job = TwoStages();
  job.workers.push_back(Worker(2, 1, {.compute = 6}, 1, 10));
  // As the plan may have them, not in the order of their workers.
  job.drift = {{.stage = 1, .worker_id = 2, .layer_seconds = 1.2},
               {.stage = 1, .worker_id = 1, .layer_seconds = 1.2},
               {.stage = 0, .worker_id = 0, .layer_seconds = 0.9}};
  for (int w = 0; w < 3; ++w) {
    job.workers[w].flow->micro_batches = w == 0 ? 20 : 10;
    job.workers[w].flow->samples = w == 0 ? 80 : 40;
  }
  const absl::StatusOr<BenchRow> row =
      RowOf(job, {.seconds = 2.1, .data = 0, .layers = 2.1}, {});

  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->stages, 2);
  EXPECT_EQ(row->workers, 3);
  EXPECT_DOUBLE_EQ(row->throughput, 8);
  EXPECT_DOUBLE_EQ(row->speedup, 4.2);
  EXPECT_NEAR(row->bound, 2.1 * 20 / (2.1 + 19 * 0.9), 1e-9);
}

TEST(BenchLosses, BoundIsThePipelinesOwn) {
  const absl::StatusOr<BenchRow> row =
      RowOf(TwoStages(), {.seconds = 2, .data = 0, .layers = 1.5}, {});

  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_NEAR(row->bound, 15 / (1.5 + 9 * 0.9), 1e-9);
}

// What the estimate expects a clock to show, frames included, would make the
// bound of a busy link a low one.
TEST(BenchLosses, BoundIsOfTheLayersNotOfWhatAPipelineAddsToThem) {
  JobView job = TwoStages();
  for (DriftView& drift : job.drift) drift.predicted_seconds = 1.5;
  const auto row = RowOf(job, {.seconds = 2, .layers = 1.5}, {});

  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_NEAR(row->bound, 15 / (1.5 + 9 * 0.9), 1e-9);
}

TEST(BenchLosses, SaysHowSteadyTheOneWorkerWas) {
  const BenchBaseline before{.seconds = 1.9, .layers = 1.5};
  const BenchBaseline after{.seconds = 2.1, .layers = 1.5};
  EXPECT_NEAR(MeanOf(before, after).seconds, 2, 1e-12);

  const auto row = RowOf(TwoStages(), MeanOf(before, after), {});
  const auto alone = RowOf(TwoStages(), before, {});

  ASSERT_TRUE(row.ok()) << row.status();
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_NEAR(row->drift, 0.1, 1e-9);
  EXPECT_EQ(alone->drift, 0);
}

TEST(BenchLosses, StagesOfOneWorkerAreOneLoad) {
  EXPECT_NEAR(PipelineBound(6, {1, 2, 3}, {0, 0, 1}, 100, 1),
              600 / (6 + 99 * 3.0), 1e-9);
  EXPECT_NEAR(PipelineBound(6, {1, 2, 3}, {0, 0, 0}, 100, 1), 1, 1e-9);
}

// Four equal stages of 3 s, eight micro-batches: the bubbles of
// core/schedule/README.md, a worker's micro-batch being 3.
TEST(BenchLosses, BoundKnowsTheSchedulesBubble) {
  const auto bound = [](const std::string& schedule, int stages) {
    std::vector<double> seconds(stages, 12.0 / stages);
    std::vector<int64_t> worker_of(stages);
    for (int s = 0; s < stages; ++s) worker_of[s] = s % 4;
    return PipelineBound(12, seconds, worker_of, 8,
                         BubblePart(schedule, stages, 4));
  };
  for (const std::string schedule : {"", "gpipe", "1f1b"}) {
    EXPECT_NEAR(bound(schedule, 4), 96 / (24 + 3 * 3.0), 1e-9) << schedule;
  }
  EXPECT_NEAR(bound("zero-bubble", 4), 96 / (24 + 3.0), 1e-9);
  EXPECT_NEAR(bound("interleaved-1f1b", 8), 96 / (24 + 3 * 3 / 2.0), 1e-9);
}

TEST(BenchLosses, OfTrainingAreThoseOfItsBatches) {
  JobView job = TwoStages();
  job.spec.kind = kTrainKind;
  job.spec.train.batch = 20;
  job.spec.train.micro_batch = 4;
  job.spec.pipeline.schedule = "1f1b";
  for (JobWorkerView& worker : job.workers) {
    worker.flow->seconds = 8;
    worker.flow->fill = 1;
    worker.flow->data = 0.5;
    worker.flow->starved = worker.flow->in_flight = 0;
    worker.flow->compute_cpu = worker.flow->compute;
  }
  job.workers[0].flow->latency_p50 = 0.25;
  job.workers[0].flow->latency_p99 = 0.5;
  const absl::StatusOr<BenchRow> row =
      RowOf(job, {.seconds = 1.2, .data = 0.05, .layers = 1.5}, {});

  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->schedule, "1f1b");
  EXPECT_DOUBLE_EQ(row->throughput, 5);
  EXPECT_DOUBLE_EQ(row->speedup, 1.5);
  EXPECT_NEAR(row->bound, 1.5 * 5 / (1.5 + 4 * 0.9), 1e-9);
  EXPECT_NEAR(row->losses.fill, 2.0 / 16, 1e-9);
  EXPECT_NEAR(row->losses.imbalance, 0.5 / 16, 1e-9)
      << "but for the half second that one worker would wait too";
  EXPECT_EQ(row->latency_p50, 0.25) << "where the first stage is";
  EXPECT_EQ(row->latency_p99, 0.5);

  job.spec.pipeline.schedule = "pipedream";
  EXPECT_NEAR(RowOf(job, {.seconds = 1.2, .data = 0, .layers = 1.5}, {})->bound,
              1.5 / 0.9, 1e-9)
      << "nothing runs empty";
}

// However long it took: some lengths once made 1.0000000000000002 of it.
TEST(BenchLosses, AWorkerAloneIsExactlyAsFastAsItself) {
  for (int microseconds = 1; microseconds < 2'000'000; microseconds += 997) {
    const double seconds = microseconds / 1e6;
    JobView job = TwoStages();
    job.workers.clear();
    job.workers.push_back(Worker(0, 0, {.compute = seconds}, 0, seconds));
    job.drift = {{.stage = 0, .worker_id = 0, .layer_seconds = 0.3}};
    const auto alone = BaselineOf(job);
    ASSERT_TRUE(alone.ok()) << alone.status();

    EXPECT_EQ(RowOf(job, *alone, {})->speedup, 1) << seconds;
  }
}

TEST(BenchLosses, NeedTheTimesOfEveryWorker) {
  JobView job = TwoStages();
  job.workers[1].flow.reset();
  const absl::Status none = RowOf(job, {1, 0, 1}, {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("worker b"));

  job = TwoStages();
  job.drift.pop_back();
  EXPECT_THAT(std::string(RowOf(job, {1, 0, 1}, {}).status().message()),
              HasSubstr("what the layers of stage 1 take on b"));
  job.drift.clear();
  job.workers.pop_back();
  EXPECT_THAT(std::string(BaselineOf(job).status().message()),
              HasSubstr("what the layers of stage 0 take on a"));
}

TEST(BenchCases, BeginWithOneWorkerAlone) {
  BenchOptions options;
  options.stages = {2, 1, 4};
  options.policies = {"equal", "dp"};
  const std::vector<BenchCase> cases = BenchCases(options, 4);

  ASSERT_EQ(cases.size(), 5u);
  EXPECT_EQ(cases[0].stages, 1);
  EXPECT_EQ(cases[1].stages, 2);
  EXPECT_EQ(cases[1].policy, "equal");
  EXPECT_EQ(cases[4].stages, 4);
  EXPECT_EQ(cases[4].policy, "dp");
}

TEST(BenchCases, CompareStreamsWithAStreamOfOneWorker) {
  BenchOptions options;
  options.train = true;
  options.stages = {1, 4};
  options.schedules = {"pipedream", "zero-bubble"};
  const std::vector<BenchCase> cases = BenchCases(options, 4);

  ASSERT_EQ(cases.size(), 4u);
  EXPECT_EQ(cases[0].stages, 1);
  EXPECT_EQ(cases[0].schedule, "1f1b");
  EXPECT_EQ(cases[1].schedule, "zero-bubble");
  EXPECT_EQ(cases[2].stages, 1);
  EXPECT_EQ(cases[2].schedule, "pipedream");
  EXPECT_EQ(cases[3].stages, 4);
}

TEST(BenchCases, UseAllWorkersByDefault) {
  const std::vector<BenchCase> cases = BenchCases({}, 3);

  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[1].stages, 3);
  EXPECT_EQ(cases[1].policy, "dp");
}

}  // namespace
}  // namespace paceline
