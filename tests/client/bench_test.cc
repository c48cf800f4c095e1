#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/job/job.h"
#include "client/study/study.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using testing::HasSubstr;

constexpr int64_t kBegin = 1'700'000'000'000'000;

v1::JobWorker Worker(int id, int stage, const std::string& flow_text,
                     double first_seconds, double last_seconds) {
  v1::JobWorker worker;
  worker.set_id(id);
  worker.set_name(std::string(1, static_cast<char>('a' + id)));
  *worker.mutable_stages() =
      Placed({{stage, stage, stage + 1, id, worker.name()}});
  v1::FlowTimes& flow = *worker.mutable_run()->mutable_flow();
  flow = Parse<v1::FlowTimes>(flow_text);
  flow.set_micro_batches(10);
  flow.set_samples(40);
  flow.set_first_unix_us(kBegin + static_cast<int64_t>(first_seconds * 1e6));
  flow.set_last_unix_us(kBegin + static_cast<int64_t>(last_seconds * 1e6));
  return worker;
}

// Two workers for 10 s: the first computes from 0 to 9, the second from 1 to
// 10 but for waits.
v1::Job TwoStages() {
  v1::Job job = Parse<v1::Job>(R"(
    id: 7 spec { kind: "infer" pipeline { policy: "optimal" } }
    drift { stage: 0 worker_id: 0 layer_seconds: 0.9 }
    drift { stage: 1 worker_id: 1 layer_seconds: 0.6 })");
  *job.add_workers() = Worker(0, 0, "compute: 9 compute_cpu: 3.6", 0, 9);
  *job.add_workers() =
      Worker(1, 1,
             "compute: 6.5 compute_cpu: 2.4 other_cpu: 0.1 starved: 1.5 "
             "in_flight: 1 latency_p50: 2 latency_p99: 3",
             1, 10);
  return job;
}

// The row of a job; fails the test when there is none.
BenchRow RowOrFail(const v1::Job& job, const BenchBaseline& one,
                   const CpuShares& shares = {}) {
  return RowOf(job, one, shares).value();
}

TEST(BenchLosses, AddUpToWhatIsMissing) {
  const BenchRow row =
      RowOrFail(TwoStages(), {.seconds = 1.5, .data = 0, .layers = 1.5},
                {{"a", 0.4}, {"b", 0.4}});

  EXPECT_EQ(row.stages, 2);
  EXPECT_EQ(row.workers, 2);
  EXPECT_DOUBLE_EQ(row.seconds, 10);
  EXPECT_DOUBLE_EQ(row.throughput, 4);
  EXPECT_DOUBLE_EQ(row.speedup, 1.5);
  EXPECT_NEAR(row.losses.fill, 2.0 / 20, 1e-9) << "a second at each end";
  EXPECT_NEAR(row.losses.imbalance, 1.5 / 20, 1e-9);
  // A second on its way; and compute was half a second longer than 2.4 / 0.4,
  // of which 0.1 / 0.4 can be other threads'.
  EXPECT_NEAR(row.losses.transfer, 1.25 / 20, 1e-9);
  EXPECT_NEAR(row.losses.unexplained, 1 - 0.75 - 4.75 / 20, 1e-9);
  EXPECT_DOUBLE_EQ(row.latency_p50, 2);
  EXPECT_EQ(row.plan, "[0,1) a, [1,2) b");
}

// The second worker saved CPU while it waited, and computed 2.8 CPU seconds, 7
// s at its share, in 6.5.
TEST(BenchLosses, WaitsThatAQuotaGivesBackAreNoLoss) {
  v1::Job job = TwoStages();
  job.mutable_workers(1)->mutable_run()->mutable_flow()->set_compute_cpu(2.8);
  const BenchRow row =
      RowOrFail(job, {.seconds = 1.5, .data = 0, .layers = 1.5},
                {{"a", 0.4}, {"b", 0.4}});

  EXPECT_NEAR(row.losses.imbalance, 0.8 * 1.5 / 20, 1e-9);
  EXPECT_NEAR(row.losses.transfer, 0.8 * 1 / 20, 1e-9);
}

// Both workers' layers took 6 CPU seconds of 10 micro-batches, which the one
// alone does in 4.8: a fifth.
TEST(BenchLosses, SlowdownIsWhatLayersTookBeyondOneWorkersCpu) {
  const BenchRow row = RowOrFail(
      TwoStages(), {.seconds = 1.5, .data = 0, .layers = 1.5, .cpu = 0.48},
      {{"a", 0.4}, {"b", 0.4}});

  EXPECT_NEAR(row.losses.slowdown, 0.2 * 6 / 0.4 / 20, 1e-9);
  EXPECT_NEAR(row.losses.unexplained,
              1 - 0.75 - 4.75 / 20 - row.losses.slowdown, 1e-9);
}

// "a" alone computes with 0.4 of a core; "b" has half of that, so that its 2.4
// CPU seconds last 12 s, not 6.
TEST(BenchLosses, ASmallerShareOfACoreIsSlowdownToo) {
  v1::Job job = TwoStages();
  const BenchBaseline one{
      .seconds = 1.5, .layers = 1.5, .cpu = 0.6, .worker = "a"};
  const BenchRow alike = RowOrFail(job, one, {{"a", 0.4}, {"b", 0.39}});
  const BenchRow half = RowOrFail(job, one, {{"a", 0.4}, {"b", 0.2}});

  EXPECT_NEAR(alike.losses.slowdown, 0, 1e-9);
  EXPECT_NEAR(half.losses.slowdown, (12.0 - 6.0) / 20, 1e-9);
}

TEST(BenchLosses, KnowsWhoWasAlone) {
  v1::Job job = TwoStages();
  job.mutable_workers()->RemoveLast();
  job.mutable_drift()->RemoveLast();

  const auto one = BaselineOf(job).value();

  EXPECT_EQ(one.worker, "a");
  EXPECT_EQ(one.layers, 0.9);
  EXPECT_EQ(MeanOf(one, one).worker, "a");
}

// The second stage's worker "b" has half of the micro-batches, "c" the others.
TEST(BenchLosses, OfReplicasCountEveryMicroBatchOnce) {
  v1::Job job = TwoStages();
  *job.add_workers() = Worker(2, 1, "compute: 6", 1, 10);
  // As the plan may have them, not in the order of their workers.
  *job.mutable_drift() = Parse<v1::Job>(R"(
    drift { stage: 1 worker_id: 2 layer_seconds: 1.2 }
    drift { stage: 1 worker_id: 1 layer_seconds: 1.2 }
    drift { stage: 0 worker_id: 0 layer_seconds: 0.9 })")
                             .drift();
  for (int w = 0; w < 3; ++w) {
    v1::FlowTimes& flow =
        *job.mutable_workers(w)->mutable_run()->mutable_flow();
    flow.set_micro_batches(w == 0 ? 20 : 10);
    flow.set_samples(w == 0 ? 80 : 40);
  }
  const BenchRow row =
      RowOrFail(job, {.seconds = 2.1, .data = 0, .layers = 2.1});

  EXPECT_EQ(row.stages, 2);
  EXPECT_EQ(row.workers, 3);
  EXPECT_DOUBLE_EQ(row.throughput, 8);
  EXPECT_DOUBLE_EQ(row.speedup, 4.2);
  EXPECT_NEAR(row.bound, 2.1 * 20 / (2.1 + 19 * 0.9), 1e-9);
}

// The estimate's seconds have frames in them: with them the bound of a busy
// link would be too low.
TEST(BenchLosses, BoundIsOfTheLayersNotOfWhatAPipelineAddsToThem) {
  v1::Job job = TwoStages();
  for (v1::StageDrift& drift : *job.mutable_drift()) {
    drift.set_predicted_seconds(1.5);
  }

  const BenchRow row = RowOrFail(job, {.seconds = 2, .layers = 1.5});

  EXPECT_NEAR(row.bound, 15 / (1.5 + 9 * 0.9), 1e-9);
}

TEST(BenchLosses, SaysHowSteadyTheOneWorkerWas) {
  const BenchBaseline before{.seconds = 1.9, .layers = 1.5};
  const BenchBaseline after{.seconds = 2.1, .layers = 1.5};
  EXPECT_NEAR(MeanOf(before, after).seconds, 2, 1e-12);

  const BenchRow row = RowOrFail(TwoStages(), MeanOf(before, after));
  const BenchRow alone = RowOrFail(TwoStages(), before);

  EXPECT_NEAR(row.drift, 0.1, 1e-9);
  EXPECT_EQ(alone.drift, 0);
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
  v1::Job job = TwoStages();
  *job.mutable_spec() = Parse<v1::JobSpec>(R"(
    kind: "train" train { batch: 20 micro_batch: 4 }
    pipeline { policy: "optimal" schedule: "1f1b" })");
  for (v1::JobWorker& worker : *job.mutable_workers()) {
    v1::FlowTimes& flow = *worker.mutable_run()->mutable_flow();
    flow.set_seconds(8);
    flow.set_fill(1);
    flow.set_data(0.5);
    flow.clear_starved();
    flow.clear_in_flight();
    flow.set_compute_cpu(flow.compute());
  }
  job.mutable_workers(0)->mutable_run()->mutable_flow()->set_latency_p50(0.25);
  job.mutable_workers(0)->mutable_run()->mutable_flow()->set_latency_p99(0.5);
  const BenchRow row =
      RowOrFail(job, {.seconds = 1.2, .data = 0.05, .layers = 1.5});

  EXPECT_EQ(row.schedule, "1f1b");
  EXPECT_DOUBLE_EQ(row.throughput, 5);
  EXPECT_DOUBLE_EQ(row.speedup, 1.5);
  EXPECT_NEAR(row.bound, 1.5 * 5 / (1.5 + 4 * 0.9), 1e-9);
  EXPECT_NEAR(row.losses.fill, 2.0 / 16, 1e-9);
  EXPECT_NEAR(row.losses.imbalance, 0.5 / 16, 1e-9)
      << "but for the half second that one worker would wait too";
  EXPECT_EQ(row.latency_p50, 0.25) << "where the first stage is";
  EXPECT_EQ(row.latency_p99, 0.5);

  job.mutable_spec()->mutable_pipeline()->set_schedule("pipedream");
  EXPECT_NEAR(RowOf(job, {.seconds = 1.2, .data = 0, .layers = 1.5}, {})->bound,
              1.5 / 0.9, 1e-9)
      << "nothing runs empty";
}

// However long it took: some lengths once made 1.0000000000000002 of it.
TEST(BenchLosses, AWorkerAloneIsExactlyAsFastAsItself) {
  for (int microseconds = 1; microseconds < 2'000'000; microseconds += 997) {
    const double seconds = microseconds / 1e6;
    v1::Job job = TwoStages();
    job.mutable_workers()->RemoveLast();
    *job.mutable_workers(0) =
        Worker(0, 0, absl::StrCat("compute: ", seconds), 0, seconds);
    job.mutable_drift()->RemoveLast();
    job.mutable_drift(0)->set_layer_seconds(0.3);
    const auto alone = BaselineOf(job).value();

    EXPECT_EQ(RowOf(job, alone, {})->speedup, 1) << seconds;
  }
}

TEST(BenchLosses, NeedTheTimesOfEveryWorker) {
  v1::Job job = TwoStages();
  job.mutable_workers(1)->mutable_run()->clear_flow();
  const absl::Status none = RowOf(job, {1, 0, 1}, {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none));
  EXPECT_THAT(none.message(), HasSubstr("worker b"));

  job = TwoStages();
  job.mutable_drift()->RemoveLast();
  EXPECT_THAT(std::string(RowOf(job, {1, 0, 1}, {}).status().message()),
              HasSubstr("what the layers of stage 1 take on b"));
  job.clear_drift();
  job.mutable_workers()->RemoveLast();
  EXPECT_THAT(BaselineOf(job).status().message(),
              HasSubstr("what the layers of stage 0 take on a"));
}

// "1 optimal 1f1b; 4 optimal gpipe": the cases of a bench.
std::string Cases(const BenchOptions& options, int workers) {
  return Joined(BenchCases(options, workers), "; ", [](const BenchCase& one) {
    return absl::StrCat(one.stages, " ", one.policy,
                        one.schedule.empty() ? "" : " ", one.schedule);
  });
}

TEST(BenchCases, BeginWithOneWorkerAloneOfTheSameKind) {
  EXPECT_EQ(Cases({}, 3), "1 optimal; 3 optimal") << "all workers by default";
  EXPECT_EQ(Cases({.stages = {2, 1, 4}, .policies = {"equal", "optimal"}}, 4),
            "1 equal; 2 equal; 2 optimal; 4 equal; 4 optimal");
  EXPECT_EQ(Cases({.stages = {1, 4},
                   .train = true,
                   .schedules = {"pipedream", "zero-bubble"}},
                  4),
            "1 optimal 1f1b; 4 optimal zero-bubble; 1 optimal pipedream; 4 "
            "optimal pipedream");
}

TEST(BenchJobs, AreRoundsOfAllCasesEachBesideItsWorkerAlone) {
  const auto jobs_of = [](const BenchOptions& options) {
    std::vector<std::string> jobs;
    for (const TrialJob& job :
         BenchJobs(LenetSpec(4), options, BenchCases(options, /*workers=*/2))) {
      jobs.push_back(absl::StrCat(job.trial, " of ", job.repeat, " beside ",
                                  *job.against,
                                  job.only_compares ? " again" : ""));
    }
    return absl::StrJoin(jobs, ", ");
  };

  EXPECT_EQ(jobs_of({.tries = 2}),
            "0 of 0 beside 0, 1 of 0 beside 0, 0 of 1 beside 0, "
            "1 of 1 beside 0");
  EXPECT_EQ(jobs_of({.policies = {"optimal", "equal"}, .paired = 8}),
            "0 of 0 beside 0, 1 of 0 beside 0, 0 of 0 beside 0 again, "
            "2 of 0 beside 0, 0 of 0 beside 0 again");
  EXPECT_EQ(jobs_of({.train = true, .schedules = {"1f1b", "pipedream"}}),
            "0 of 0 beside 0, 1 of 0 beside 0, 2 of 0 beside 2, "
            "3 of 0 beside 2");
}

TEST(BenchRows, AreTheTriesOfMedianSpeedUp) {
  std::vector<TrialJob> jobs(4);
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].trial = i / 3;
  for (const size_t i : {0, 1, 2}) {
    BenchRow& row = jobs[i].row.emplace();
    row.throughput = 10 + static_cast<double>(i);
    row.speedup = i == 1 ? 9 : 3;
  }

  const std::vector<BenchRow> rows = MedianRows(jobs);

  ASSERT_EQ(rows.size(), 1u) << "one has none yet";
  EXPECT_EQ(rows[0].throughput, 12);
}

// A bench of a file that no worker has once measured for minutes first.
TEST(BenchCommand, LooksForItsFilesBeforeItMeasures) {
  for (const bool train : {false, true}) {
    CommandBed bed;
    bed.client.workers = IdleWorkers({"w1"});
    bed.client.started =
        Parse<v1::StartProfileResponse>(R"(id: 3 workers: "w1")");
    ProfileProgress& progress = bed.client.progress.emplace_back().emplace();
    v1::MissingFile& missing = progress.missing.emplace_back();
    missing.set_path("/w");
    missing.set_why("No such file or directory");
    missing.set_worker("w1");
    JobSpec spec = LenetSpec(4);
    spec.model.weights = "/w";

    EXPECT_EQ(bed.Code(BenchCommand(bed.context, spec,
                                    {.model = "lenet", .train = train})),
              kExitUsage);

    EXPECT_THAT(bed.err.str(), HasSubstr("model.weights /w: No such file"));
    EXPECT_EQ(bed.client.ordered.size(), 1u);
    EXPECT_TRUE(bed.client.submitted.empty());
  }
}

TEST(BenchLength, IsSomeSecondsWhereThatIsMoreThanGiven) {
  EXPECT_EQ(EnoughMicroBatches(96, 0.5), 8 * 96);
  EXPECT_EQ(EnoughMicroBatches(96, 60), 96);
  EXPECT_EQ(EnoughMicroBatches(96, 1e-9), 65536);
  EXPECT_EQ(EnoughMicroBatches(96, 0), 96) << "not known";
}

// Such keys were taken without a word, and written over.
TEST(BenchSets, ThatTheBenchDecidesAreRefusedWithTheFlagToUse) {
  ExpectAnswers("client/bench_sets", [](const std::string& set) {
    std::string answer;
    for (const bool train : {false, true}) {
      const absl::Status status = CheckBenchSets({set}, train);
      EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
      absl::StrAppend(&answer, train ? "train: " : "infer: ",
                      status.ok() ? "counts" : status.message(), "\n");
    }
    return answer;
  });
}

TEST(BenchSets, AreAllNamedInOneMessage) {
  const absl::Status status =
      CheckBenchSets({"kind=infer", "model.depth=2", "train.steps=4"}, true);

  EXPECT_THAT(status.message(),
              Says("--set kind=infer", "\n--set train.steps=4"));
}

BenchRow Row() {
  return {.stages = 4,
          .policy = "optimal",
          .schedule = "",
          .workers = 4,
          .plan = "[0,7) a, [7,12) b",
          .seconds = 32,
          .throughput = 12,
          .speedup = 3.6,
          .bound = 3.75,
          .drift = 0.01,
          .latency_p50 = 1.25,
          .latency_p99 = 2.5,
          .losses = {0.03, 0.02, 0.015, 0.025, 0.01}};
}

TEST(BenchRows, AreATableAndADocument) {
  BenchRow training = Row();
  training.schedule = "1f1b";
  training.latency_p50 = training.latency_p99 = 0;  // not known

  Golden golden("client/bench");
  golden.Add("the table", RenderBench({Row(), training}));
  golden.Add("the document",
             ToJson(BenchDocument({.model = "deit"}, {Row(), training}),
                    /*pretty=*/true));
}

}  // namespace
}  // namespace paceline
