#include "worker/pipeline/stage_runner.h"

#include <atomic>
#include <limits>

#include "core/data/batch.h"
#include "core/schedule/asynchronous.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"
#include "tests/worker/control/fake_pipeline.h"

namespace paceline {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::SizeIs;

// 100 training samples in batches of 24: the fifth has 4, in one micro-batch.
PipelineRequest FourLayerJob(const std::string& schedule,
                             std::vector<int> worker_of) {
  return FakePipeline(FourLayerSpec(), schedule, std::move(worker_of));
}

TEST(StageRunner, EndsWithTheSameBytesAtAnyCutScheduleAndPlacement) {
  ExpectTheSameBytesEverywhere(FourLayerJob, {{0},
                                              {0, 0, 0},
                                              {0, 1},
                                              {0, 1, 2},
                                              {0, 1, 2, 3},
                                              {0, 1, 0, 1},
                                              {0, 0, 1},
                                              {0, 0, 1, 1}});
}

// An epoch has five steps, after which comes an evaluation.
TEST(StageRunner, GoesOnFromCopiedStatesAfterAnyStepOnOtherStages) {
  for (const int64_t step : {3, 5, 9, 10}) {
    PipelineRequest request = FourLayerJob("1f1b", {0, 1});
    request.spec.train.learning_rate = {0.01, "cosine", 3};
    ExpectToGoOn(request, step, {0, 1, 2});
    request.spec.train.optimizer = {.name = "sgd", .momentum = 0.9};
    ExpectToGoOn(request, step, {0, 1, 2, 3});
  }
}

TEST(StageRunner, RecordsEveryStepAndEvaluatesAfterEveryEpoch) {
  const auto outcome = Value(RunPipeline(FourLayerJob("1f1b", {0, 1})));

  ASSERT_THAT(outcome.steps, SizeIs(10));
  EXPECT_EQ(outcome.steps.front().step(), 1);
  EXPECT_EQ(outcome.steps[4].samples(), 4) << "the last, shorter batch";
  EXPECT_LT(outcome.steps[8].loss(), outcome.steps[0].loss());
  ASSERT_THAT(outcome.evaluations, SizeIs(2));
  EXPECT_EQ(outcome.evaluations[0].step(), 5);
  EXPECT_EQ(outcome.evaluations[1].step(), 10);
  EXPECT_EQ(outcome.evaluations[1].samples(), 30);
}

TEST(StageRunner, OfTrainingTheFirstStagesWorkerKnowsTheLatency) {
  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved-1f1b", "zero-bubble", "pipedream"}) {
    const std::vector<int> worker_of = schedule == std::string("pipedream")
                                           ? std::vector<int>{0, 1, 2}
                                           : std::vector<int>{0, 1, 0, 1};
    if (!IsMadeFor(schedule, 5, worker_of)) continue;
    const auto outcome = Value(RunPipeline(FourLayerJob(schedule, worker_of)));

    EXPECT_GT(outcome.flows.at(0).latency_p50(), 0) << schedule;
    EXPECT_GE(outcome.flows.at(0).latency_max(),
              outcome.flows.at(0).latency_p99());
    EXPECT_EQ(outcome.flows.at(1).latency_max(), 0) << schedule;
  }
}

TEST(StageRunner, TracesBatchesOfAllStages) {
  for (const char* schedule : {"1f1b", "zero-bubble", "pipedream"}) {
    const auto outcome = Value(RunPipeline(FourLayerJob(schedule, {0, 1})));

    ASSERT_THAT(outcome.traces, SizeIs(2)) << schedule;
    for (const auto& [stage, trace] : outcome.traces) {
      const int count = trace.us_size();
      // All of five micro-batches, or of one.
      // Both have traced the last one, however fast each of them is.
      EXPECT_EQ(trace.step(), outcome.traces.begin()->second.step());
      const bool halves = schedule == std::string("zero-bubble");
      const int micro_batches = trace.step() % 5 == 0 ? 1 : 5;
      EXPECT_EQ(count, micro_batches * (halves ? 3 : 2))
          << schedule << trace.DebugString();
      EXPECT_EQ(trace.ops().size(), count);
      EXPECT_EQ(trace.ops()[0], 'F');
      EXPECT_EQ(trace.micro_batches_size(), count);
      for (int i = 1; i < count; ++i) {
        EXPECT_GE(trace.begin_us(i), trace.begin_us(i - 1) + trace.us(i - 1));
      }
    }
  }
}

// The test set of 30 samples in micro-batches of 4: the eighth has 2.
PipelineRequest InferenceJob(std::vector<int> worker_of) {
  PipelineRequest request = FourLayerJob("gpipe", std::move(worker_of));
  JobSpec& spec = request.spec;
  spec.kind = kInferKind;
  spec.infer.micro_batch = 4;
  spec.train = ForInference(spec.infer, spec.train.seed);
  return request;
}

TEST(StageRunner, InfersTheSameOnAnyNumberOfStagesAndWorkers) {
  const auto alone = Value(RunPipeline(InferenceJob({0})));
  EXPECT_EQ(alone.weights.at("classes").size(), 30 * sizeof(int64_t));
  EXPECT_EQ(alone.weights.at("outputs").size(), 30 * 3 * sizeof(float));
  EXPECT_EQ(alone.flows.at(0).labels(), 30);
  EXPECT_GT(alone.flows.at(0).loss(), 0);
  EXPECT_THAT(alone.evaluations, SizeIs(0)) << "the coordinator sums up";
  EXPECT_THAT(alone.steps, SizeIs(0));

  for (const std::vector<int>& worker_of :
       {std::vector<int>{0, 1}, {0, 0, 1}, {0, 1, 2, 3}, {0, 1, 0, 1}}) {
    const auto outcome = Value(RunPipeline(InferenceJob(worker_of)));
    EXPECT_EQ(outcome.weights, alone.weights);
    for (const auto& [worker, flow] : outcome.flows) {
      EXPECT_EQ(flow.micro_batches(), 8) << "worker " << worker;
      EXPECT_EQ(flow.samples(), 30);
      EXPECT_GT(flow.first_unix_us(), 0);
    }
    EXPECT_GT(outcome.flows.at(worker_of.back()).latency_p50(), 0);
  }
}

// Eight micro-batches; stages of one, two and three workers, the first and the
// last among them.
TEST(StageRunner, ReplicasInferTheSameAndEachItsTurns) {
  const auto alone = Value(RunPipeline(InferenceJob({0})));
  for (const std::vector<std::vector<int>>& replicas :
       {std::vector<std::vector<int>>{{}, {2}},
        {{2}, {}},
        {{2}, {3, 4}},
        {{2, 3}, {4}}}) {
    PipelineRequest request = InferenceJob({0, 1});
    request.replicas = replicas;
    const auto outcome = Value(RunPipeline(request));
    EXPECT_EQ(outcome.weights, alone.weights);

    v1::FlowTimes last;
    for (size_t stage = 0; stage < replicas.size(); ++stage) {
      std::vector<int> workers = {static_cast<int>(stage)};
      workers.insert(workers.end(), replicas[stage].begin(),
                     replicas[stage].end());
      int64_t micro_batches = 0;
      for (const int worker : workers) {
        const v1::FlowTimes& flow = outcome.flows.at(worker);
        const auto share = 8 / static_cast<int64_t>(workers.size());
        EXPECT_GE(flow.micro_batches(), share);
        EXPECT_LE(flow.micro_batches(), share + 1);
        micro_batches += flow.micro_batches();
        if (stage + 1 < replicas.size()) continue;
        last.set_labels(last.labels() + flow.labels());
        last.set_correct(last.correct() + flow.correct());
        last.set_loss(last.loss() + flow.loss());
      }
      EXPECT_EQ(micro_batches, 8) << "stage " << stage;
    }
    EXPECT_EQ(last.labels(), alone.flows.at(0).labels());
    EXPECT_EQ(last.correct(), alone.flows.at(0).correct());
    EXPECT_NEAR(last.loss(), alone.flows.at(0).loss(), 1e-9);
  }
}

// The last batch of an epoch has one micro-batch, so that most have none of it.
void ExpectReplicasToTrainLike(const PipelineOutcome& alone,
                               const PipelineRequest& request) {
  const auto outcome = Value(RunPipeline(request));

  for (const auto& [stage_and_step, hashes] : outcome.hashes) {
    EXPECT_THAT(hashes, SizeIs(1)) << "after step " << stage_and_step.second;
  }
  ASSERT_THAT(outcome.steps, SizeIs(alone.steps.size()));
  for (size_t i = 0; i < alone.steps.size(); ++i) {
    const v1::StepRecord& expected = alone.steps[i];
    EXPECT_NEAR(outcome.steps[i].loss(), expected.loss(), 1e-5);
    EXPECT_EQ(outcome.steps[i].samples(), expected.samples());
    EXPECT_NEAR(outcome.steps[i].gradient_norm(), expected.gradient_norm(),
                1e-5);
  }
  ASSERT_THAT(outcome.evaluations, SizeIs(alone.evaluations.size()));
  for (size_t i = 0; i < alone.evaluations.size(); ++i) {
    EXPECT_EQ(outcome.evaluations[i].samples(), 30);
    EXPECT_NEAR(outcome.evaluations[i].loss(), alone.evaluations[i].loss(),
                1e-5);
  }
  for (const auto& [name, bytes] : alone.weights) {
    const auto floats = [](const std::vector<uint8_t>& of) {
      return absl::MakeConstSpan(reinterpret_cast<const float*>(of.data()),
                                 of.size() / sizeof(float));
    };
    EXPECT_THAT(floats(outcome.weights.at(name)),
                Pointwise(FloatNear(1e-5f), floats(bytes)))
        << name;
  }
}

TEST(StageRunner, ReplicasTrainAsOneProcessDoes) {
  const auto alone = Value(RunPipeline(FourLayerJob("gpipe", {0})));
  for (const char* schedule : {"gpipe", "1f1b", "interleaved-1f1b"}) {
    for (const std::vector<std::vector<int>>& replicas :
         {std::vector<std::vector<int>>{{}, {3}, {}},
          {{3}, {}, {}},
          {{}, {}, {3, 4}},
          {{3, 4}, {5}, {}},
          {{3}, {4, 5}, {6}}}) {
      PipelineRequest request = FourLayerJob(schedule, {0, 1, 2});
      request.replicas = replicas;
      ExpectReplicasToTrainLike(alone, request);
    }
  }
}

// An engine whose fourth update leaves something else than it should.
class WrongUpdateEngine final : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;

  absl::Status Apply(const StepVerdict& verdict) override {
    const absl::Status applied = FakeEngine::Apply(verdict);
    if (verdict.step == 3) {
      Tensor weights = Weights().value()[0].tensor;
      weights.As<float>()[0] += 1e-6f;
    }
    return applied;
  }
};

TEST(StageRunner, ReplicasThatDifferAfterAStepEndTheRun) {
  PipelineRequest request = FourLayerJob("1f1b", {0, 1});
  request.replicas = {{}, {2, 3}};
  std::atomic<int> made = 0;
  request.make_engine = [&made](const EngineOptions& options)
      -> absl::StatusOr<std::unique_ptr<StageEngine>> {
    if (options.stage == 0 || ++made != 2) return MakeFake(options);
    return std::make_unique<WrongUpdateEngine>(options);
  };

  const absl::Status status = RunPipeline(request).status();

  ExpectError(status, absl::StatusCode::kDataLoss,
              HasSubstr("of stage 1 differ after 4 steps"));
}

// The third replica has none of five micro-batches.
TEST(StageRunner, ReplicasTrainBySharesAndWithoutWork) {
  const auto alone = Value(RunPipeline(FourLayerJob("gpipe", {0})));
  PipelineRequest request = FourLayerJob("1f1b", {0, 1});
  request.replicas = {{2, 3}, {4}};
  request.shares = {{3, 2, 0.1}, {1, 4}};
  ExpectReplicasToTrainLike(alone, request);
}

TEST(StageRunner, AReplicaOfTheFirstStageEndsWithoutAMicroBatch) {
  PipelineRequest request = InferenceJob({0, 1});
  request.replicas = {{2, 3}, {}};
  request.spec.infer.samples = 6;  // two micro-batches

  const auto outcome = Value(RunPipeline(request));

  EXPECT_EQ(outcome.weights.at("classes").size(), 6 * sizeof(int64_t));
  EXPECT_EQ(outcome.flows.at(3).micro_batches(), 0);
}

TEST(StageRunner, InfersOnlyTheSamplesAskedFor) {
  PipelineRequest request = InferenceJob({0, 1});
  request.spec.infer.samples = 6;
  request.spec.infer.outputs = false;

  const auto outcome = Value(RunPipeline(request));

  EXPECT_EQ(outcome.weights.at("classes").size(), 6 * sizeof(int64_t));
  EXPECT_EQ(outcome.weights.count("outputs"), 0u);
}

TEST(StageRunner, InfersFromAMicroBatchOnAsItWouldHaveFromTheFirst) {
  for (const auto& replicas : std::vector<std::vector<std::vector<int>>>{
           {{}, {}}, {{}, {2}}, {{2, 3}, {4}}}) {
    PipelineRequest request = InferenceJob({0, 1});
    request.replicas = replicas;
    const auto whole = RunPipeline(request).value();
    request.first_step = 3;  // after 12 of 30 samples

    const auto rest = RunPipeline(request).value();

    for (const char* const name : {"classes", "labels", "outputs"}) {
      const std::vector<uint8_t>& all = whole.weights.at(name);
      const std::vector<uint8_t>& later = rest.weights.at(name);
      const auto done = static_cast<std::ptrdiff_t>(12 * all.size() / 30);
      ASSERT_EQ(later.size(), all.size()) << name;
      EXPECT_TRUE(
          std::equal(all.begin() + done, all.end(), later.begin() + done))
          << name;
      EXPECT_TRUE(std::all_of(later.begin(), later.begin() + done,
                              [](uint8_t byte) { return byte == 0; }))
          << name << ": what was done is done again";
    }
  }
}

TEST(StageRunner, InfersNothingWhereAllIsDone) {
  PipelineRequest request = InferenceJob({0});
  request.first_step = 8;

  EXPECT_TRUE(RunPipeline(request).value().weights.empty());
}

TEST(StageRunner, RefusesToInferFromNoSamples) {
  PipelineRequest request = InferenceJob({0});
  request.spec.data.test_samples = 0;

  const absl::Status status = RunPipeline(request).status();

  ExpectError(status, absl::StatusCode::kInvalidArgument,
              HasSubstr("no test samples"));
}

// An engine that fails at one micro-batch.
class FailingEngine final : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;

  absl::StatusOr<ForwardResult> Forward(const BatchInfo& batch, int micro_batch,
                                        TensorList input) override {
    if (batch.step == 1 && micro_batch == 2) {
      return absl::InternalError("this engine fails at step 1");
    }
    return FakeEngine::Forward(batch, micro_batch, std::move(input));
  }
};

TEST(StageRunner, ReturnsTheErrorOfAnEngineAsItIs) {
  for (const char* const schedule : {"1f1b", "pipedream"}) {
    PipelineRequest request = FourLayerJob(schedule, {0, 1, 2});
    request.make_engine = OnStage<FailingEngine>(1);

    ExpectError(RunPipeline(request).status(), absl::StatusCode::kInternal,
                HasSubstr("this engine fails at step 1"));
  }
}

// An engine whose gradient is not a number in the steps [kFirst, kEnd);
// asynchronous schedules count updates.
template <int64_t kFirst, int64_t kEnd>
class NanEngine final : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;

  absl::StatusOr<StepReport> Report(const BatchInfo& batch) override {
    absl::StatusOr<StepReport> report = FakeEngine::Report(batch);
    if (report.ok() && batch.step >= kFirst && batch.step < kEnd) {
      report->finite = false;
    }
    return report;
  }
};

TEST(StageRunner, SkipsAStepOnAllStagesWhenOneReportsNoNumber) {
  PipelineRequest request = FourLayerJob("gpipe", {0, 1});
  request.make_engine = OnStage<NanEngine<3, 4>>(1);

  const auto outcome = Value(RunPipeline(request));

  ASSERT_THAT(outcome.steps, SizeIs(10));
  EXPECT_TRUE(outcome.steps[3].skipped());
  EXPECT_FALSE(outcome.steps[4].skipped());
}

TEST(StageRunner, EndsOnAllStagesWhenTwentyStepsInARowAreSkipped) {
  for (const char* const schedule : {"gpipe", "pipedream"}) {
    PipelineRequest request = FourLayerJob(schedule, {0, 1});
    request.spec.train.steps = 200;
    request.spec.train.epochs = 0;
    request.make_engine = OnStage<NanEngine<4, INT64_MAX>>(1);

    ExpectError(RunPipeline(request).status(),
                absl::StatusCode::kInvalidArgument,
                HasSubstr("20 steps in a row were skipped"));
  }
}

// An engine whose weights are infinite after 3 updates.
class BrokenEngine final : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;

  absl::Status Apply(const StepVerdict& verdict) override {
    const absl::Status applied = FakeEngine::Apply(verdict);
    if (++updates_ == 3) {
      Weights()->front().tensor.As<float>()[0] =
          std::numeric_limits<float>::infinity();
    }
    return applied;
  }

 private:
  int updates_ = 0;
};

TEST(StageRunner, WeightsThatAreNoNumbersEndTheRunAtOnce) {
  for (const char* const schedule : {"gpipe", "pipedream"}) {
    PipelineRequest request = FourLayerJob(schedule, {0, 1});
    request.make_engine = OnStage<BrokenEngine>(1);

    ExpectError(RunPipeline(request).status(),
                absl::StatusCode::kInvalidArgument,
                HasSubstr("NaN or infinity in "));
  }
}

// 100 samples in batches of 24 and micro-batches of 6: whole groups of two, but
// for the fifth batch of one micro-batch.
TEST(StageRunner, InterleavesWithAShorterLastBatch) {
  const auto with = [](const std::string& schedule,
                       const std::vector<int>& worker_of) {
    PipelineRequest request = FourLayerJob(schedule, worker_of);
    request.spec.train.micro_batch = 6;
    return RunPipeline(request);
  };
  const auto alone = Value(with("gpipe", {0}));

  const auto dealt = Value(with("interleaved-1f1b", {0, 1, 0, 1}));

  EXPECT_EQ(dealt.weights, alone.weights);
}

PipelineRequest StreamedJob(int stages) {
  PipelineRequest request = FourLayerJob("pipedream", OneWorkerAStage(stages));
  request.spec.train.clip_norm = 0;
  return request;
}

// Micro-batches of 5 samples: 5, 5, 5, 5 and 1 a epoch.
constexpr int kUpdatesAnEpoch = 5 + 5 + 5 + 5 + 1;

TEST(StageRunner, StreamsMicroBatchesThroughWithoutAFlush) {
  const auto outcome = Value(RunPipeline(StreamedJob(3)));

  ASSERT_THAT(outcome.steps, SizeIs(10));
  for (int step = 0; step < 10; ++step) {
    EXPECT_EQ(outcome.steps[step].step(), step + 1);
  }
  EXPECT_EQ(outcome.steps[4].samples(), 4) << "the last, shorter batch";
  EXPECT_LT(outcome.steps[8].loss(), outcome.steps[0].loss());
  ASSERT_THAT(outcome.evaluations, SizeIs(2));
  EXPECT_EQ(outcome.evaluations[1].samples(), 30);
  // An epoch is a stream, since an evaluation follows it: exactly what the
  // generator says of so many micro-batches, twice.
  const Schedule epoch =
      MustMake("pipedream", 3, kUpdatesAnEpoch, OneWorkerAStage(3));
  for (int stage = 0; stage < 3; ++stage) {
    const InstructionList& done = outcome.instructions.at(stage);
    const InstructionList& planned = epoch.workers[stage];
    ASSERT_EQ(done.size(), 2 * planned.size());
    for (size_t i = 0; i < done.size(); ++i) {
      EXPECT_EQ(done[i].op, planned[i % planned.size()].op) << i;
      EXPECT_EQ(done[i].micro_batch,
                planned[i % planned.size()].micro_batch % 5)
          << i;
    }
  }
}

TEST(StageRunner, ExportsTheStalenessOfEveryGradient) {
  for (const bool vertical_sync : {false, true}) {
    for (const int stages : {1, 2, 4}) {
      PipelineRequest request = StreamedJob(stages);
      request.spec.pipeline.vertical_sync = vertical_sync;

      const auto outcome = Value(RunPipeline(request));

      for (int stage = 0; stage < stages; ++stage) {
        const v1::StageVersions& time = outcome.versions.at(stage);
        // The n-th micro-batch of a stream is at most n updates late.
        const int ahead = WarmUp(vertical_sync ? 0 : stage, stages);
        const int64_t epoch =
            ahead * (ahead - 1) / 2 + (kUpdatesAnEpoch - ahead) * ahead;
        EXPECT_EQ(time.updates(), 2 * kUpdatesAnEpoch);
        EXPECT_EQ(time.staleness(), 2 * epoch) << "stage " << stage;
        EXPECT_EQ(time.versions(), ahead + 1);
        EXPECT_GT(time.version_bytes(), 0);
      }
    }
  }
}

// The number of an update, and so its rates, goes on too.
TEST(StageRunner, AStreamGoesOnFromCopiedStatesAfterAnEpoch) {
  PipelineRequest request = StreamedJob(3);
  request.spec.train.learning_rate = {0.01, "cosine", 3};
  ExpectToGoOn(request, 5, {0, 1, 2});
  request.spec.pipeline.vertical_sync = true;
  ExpectToGoOn(request, 5, {0, 1, 2});
}

TEST(StageRunner, VerticalSyncChangesWhatIsComputed) {
  PipelineRequest request = StreamedJob(3);
  const absl::StatusOr<PipelineOutcome> without = RunPipeline(request);
  request.spec.pipeline.vertical_sync = true;
  const absl::StatusOr<PipelineOutcome> with = RunPipeline(request);

  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_NE(without->weights, with->weights);
}

TEST(StageRunner, AStreamSkipsAnUpdateOnOneStageAlone) {
  PipelineRequest request = StreamedJob(2);
  request.make_engine = OnStage<NanEngine<3, 4>>(0);

  const auto outcome = Value(RunPipeline(request));

  EXPECT_EQ(outcome.skipped_updates, 1);
  EXPECT_EQ(outcome.versions.at(0).skipped_updates(), 1);
  EXPECT_EQ(outcome.versions.at(1).skipped_updates(), 0);
  EXPECT_EQ(outcome.versions.at(0).updates(), outcome.versions.at(1).updates());
}

}  // namespace
}  // namespace paceline
