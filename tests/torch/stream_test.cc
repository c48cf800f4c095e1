// Streams without a flush, with LibTorch's engine: whole pipelines in one
// process.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline_harness.h"
#include "worker/data/open.h"
#include "worker/torch/engine.h"
#include "worker/torch/threads.h"

namespace paceline {
namespace {

PipelineRequest Job(const std::string& model, std::vector<int> worker_of) {
  SetComputeThreads(1);
  PipelineRequest request;
  JobSpec& spec = request.spec;
  spec.model.name = model;
  spec.model.width = 8;
  spec.data.name = "synthetic";
  spec.data.train_samples = 120;
  spec.data.test_samples = 40;
  if (model != "lenet") spec.data.shape = {3, 32, 32};
  spec.data.classes = 4;
  spec.train.epochs = 3;
  spec.train.batch = 24;
  spec.train.micro_batch = 8;
  spec.train.optimizer.momentum = 0.5;
  spec.train.learning_rate.base = 0.01;
  spec.pipeline.stages = static_cast<int32_t>(worker_of.size());
  spec.pipeline.schedule = "pipedream";
  request.model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
  request.worker_of = std::move(worker_of);
  request.make_engine = MakeTorchEngine;
  request.open_data = OpenBatchSource;
  return request;
}

// One stage has nothing to be late with, and its updates are those of a job
// whose batches are its micro-batches.
TEST(Stream, OfOneStageIsTrainingWithSmallBatches) {
  for (const char* model : {"lenet", "resnet18"}) {
    PipelineRequest small = Job(model, {0});
    small.spec.pipeline.schedule = "gpipe";
    small.spec.train.batch = small.spec.train.micro_batch;

    const auto streamed = RunPipeline(Job(model, {0}));
    const auto plain = RunPipeline(small);

    ASSERT_TRUE(streamed.ok() && plain.ok()) << streamed.status();
    EXPECT_EQ(streamed->weights, plain->weights) << model;
  }
}

// Running statistics (resnet18) are one for all versions.
TEST(Stream, LearnsWithStaleGradientsAndFreesTheirVersions) {
  for (const char* model : {"lenet", "resnet18"}) {
    for (const bool vertical_sync : {false, true}) {
      PipelineRequest request = Job(model, {0, 1, 2});
      request.spec.pipeline.vertical_sync = vertical_sync;

      const auto outcome = RunPipeline(request);

      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_LT(outcome->steps.back().loss, outcome->steps.front().loss)
          << model;
      for (int stage = 0; stage < 3; ++stage) {
        const StageTime& time = outcome->stages.at(stage);
        const int ahead = vertical_sync ? 2 : 2 - stage;
        EXPECT_EQ(time.versions, ahead + 1) << model << " stage " << stage;
        EXPECT_EQ(time.updates, 3 * 15);
        EXPECT_EQ(time.staleness,
                  3 * (ahead * (ahead - 1) / 2 + (15 - ahead) * ahead));
      }
    }
  }
}

// Threads of one process may run ahead of each other as they like: what is
// computed does not depend on it.
TEST(Stream, EndsWithTheSameBytesEveryTime) {
  const auto first = RunPipeline(Job("lenet", {0, 1, 2}));
  ASSERT_TRUE(first.ok()) << first.status();

  for (int i = 0; i < 3; ++i) {
    const auto again = RunPipeline(Job("lenet", {0, 1, 2}));

    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->weights, first->weights);
  }
}

}  // namespace
}  // namespace paceline
