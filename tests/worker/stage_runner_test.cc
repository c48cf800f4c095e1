#include "worker/stage_runner.h"

#include "core/model/batch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline_harness.h"
#include "worker/data/open.h"
#include "worker/fake_engine.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

absl::StatusOr<std::unique_ptr<StageEngine>> MakeFake(
    const EngineOptions& options) {
  return std::make_unique<FakeEngine>(options);
}

// 100 training samples in batches of 24: the fifth has 4, in one micro-batch.
PipelineRequest FourLayerJob(const std::string& schedule,
                             std::vector<int> worker_of) {
  PipelineRequest request;
  JobSpec& spec = request.spec;
  spec.model.name = "mlp";
  spec.model.hidden = {12, 10, 8};
  spec.data.name = "synthetic";
  spec.data.train_samples = 100;
  spec.data.test_samples = 30;
  spec.data.shape = {1, 4, 4};
  spec.data.classes = 3;
  spec.train.epochs = 2;
  spec.train.batch = 24;
  spec.train.micro_batch = 5;
  spec.train.optimizer.name = "adamw";
  spec.train.clip_norm = 1.0;
  spec.train.learning_rate.base = 0.01;
  spec.pipeline.stages = static_cast<int32_t>(worker_of.size());
  spec.pipeline.schedule = schedule;
  request.model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
  request.worker_of = std::move(worker_of);
  request.make_engine = MakeFake;
  request.open_data = OpenBatchSource;
  return request;
}

TEST(StageRunner, EndsWithTheSameBytesAtAnyCutScheduleAndPlacement) {
  const absl::StatusOr<PipelineOutcome> alone =
      RunPipeline(FourLayerJob("gpipe", {0}));
  ASSERT_TRUE(alone.ok()) << alone.status();

  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const std::vector<int>& worker_of : {std::vector<int>{0},
                                              {0, 1},
                                              {0, 1, 2},
                                              {0, 1, 2, 3},
                                              {0, 0, 1},
                                              {0, 0, 1, 1}}) {
      const absl::StatusOr<PipelineOutcome> outcome =
          RunPipeline(FourLayerJob(schedule, worker_of));
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->weights, alone->weights)
          << schedule << " on " << worker_of.size() << " stages";
      ASSERT_THAT(outcome->steps, SizeIs(alone->steps.size()));
      for (size_t i = 0; i < alone->steps.size(); ++i) {
        EXPECT_EQ(outcome->steps[i].loss, alone->steps[i].loss);
      }
    }
  }
}

TEST(StageRunner, RecordsEveryStepAndEvaluatesAfterEveryEpoch) {
  const absl::StatusOr<PipelineOutcome> outcome =
      RunPipeline(FourLayerJob("1f1b", {0, 1}));

  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_THAT(outcome->steps, SizeIs(10));
  EXPECT_EQ(outcome->steps.front().step, 1);
  EXPECT_EQ(outcome->steps[4].samples, 4) << "the last, shorter batch";
  EXPECT_LT(outcome->steps[8].loss, outcome->steps[0].loss);
  ASSERT_THAT(outcome->evaluations, SizeIs(2));
  EXPECT_EQ(outcome->evaluations[0].step, 5);
  EXPECT_EQ(outcome->evaluations[1].step, 10);
  EXPECT_EQ(outcome->evaluations[1].samples, 30);
}

// An engine that fails at one micro-batch.
class FailingEngine final : public StageEngine {
 public:
  explicit FailingEngine(const EngineOptions& options) : engine_(options) {}

  absl::StatusOr<ForwardResult> Forward(const BatchInfo& batch, int micro_batch,
                                        TensorList input) override {
    if (batch.step == 1 && micro_batch == 2) {
      return absl::InternalError("this engine fails at step 1");
    }
    return engine_.Forward(batch, micro_batch, std::move(input));
  }
  absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                      TensorList gradient) override {
    return engine_.Backward(batch, micro_batch, std::move(gradient));
  }
  absl::StatusOr<StepReport> Report(const BatchInfo& batch) override {
    return engine_.Report(batch);
  }
  absl::Status Apply(const StepVerdict& verdict) override {
    return engine_.Apply(verdict);
  }
  absl::StatusOr<std::vector<NamedTensor>> Weights() override {
    return engine_.Weights();
  }
  absl::Status SetWeights(const std::vector<NamedTensor>& weights) override {
    return engine_.SetWeights(weights);
  }

 private:
  FakeEngine engine_;
};

TEST(StageRunner, ReturnsTheErrorOfAnEngineAsItIs) {
  PipelineRequest request = FourLayerJob("1f1b", {0, 1, 2});
  request.make_engine = [](const EngineOptions& options)
      -> absl::StatusOr<std::unique_ptr<StageEngine>> {
    if (options.stage != 1) return std::make_unique<FakeEngine>(options);
    return std::make_unique<FailingEngine>(options);
  };

  const absl::StatusOr<PipelineOutcome> outcome = RunPipeline(request);

  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(outcome.status().message()),
              HasSubstr("this engine fails at step 1"));
}

// An engine whose gradient is not a number at one step.
TEST(StageRunner, SkipsAStepOnAllStagesWhenOneReportsNoNumber) {
  class NanEngine final : public StageEngine {
   public:
    explicit NanEngine(const EngineOptions& options) : engine_(options) {}
    absl::StatusOr<ForwardResult> Forward(const BatchInfo& batch,
                                          int micro_batch,
                                          TensorList input) override {
      return engine_.Forward(batch, micro_batch, std::move(input));
    }
    absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                        TensorList gradient) override {
      return engine_.Backward(batch, micro_batch, std::move(gradient));
    }
    absl::StatusOr<StepReport> Report(const BatchInfo& batch) override {
      absl::StatusOr<StepReport> report = engine_.Report(batch);
      if (report.ok() && batch.step == 3) report->finite = false;
      return report;
    }
    absl::Status Apply(const StepVerdict& verdict) override {
      return engine_.Apply(verdict);
    }
    absl::StatusOr<std::vector<NamedTensor>> Weights() override {
      return engine_.Weights();
    }
    absl::Status SetWeights(const std::vector<NamedTensor>& weights) override {
      return engine_.SetWeights(weights);
    }

   private:
    FakeEngine engine_;
  };
  PipelineRequest request = FourLayerJob("gpipe", {0, 1});
  request.make_engine = [](const EngineOptions& options)
      -> absl::StatusOr<std::unique_ptr<StageEngine>> {
    if (options.stage != 1) return std::make_unique<FakeEngine>(options);
    return std::make_unique<NanEngine>(options);
  };

  const absl::StatusOr<PipelineOutcome> outcome = RunPipeline(request);

  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_THAT(outcome->steps, SizeIs(10));
  EXPECT_TRUE(outcome->steps[3].skipped);
  EXPECT_FALSE(outcome->steps[4].skipped);
}

}  // namespace
}  // namespace paceline
