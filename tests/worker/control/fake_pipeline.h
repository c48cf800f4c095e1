// Jobs for a whole pipeline in one process, without LibTorch.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/catalog.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/fake_engine.h"
#include "tests/support/pipeline/pipeline_harness.h"
#include "tests/support/schedule_builder.h"
#include "worker/data/sample_set.h"

namespace paceline {

inline absl::StatusOr<std::unique_ptr<StageEngine>> MakeFake(
    const EngineOptions& options) {
  return std::make_unique<FakeEngine>(options);
}

// worker_of: [stages].
inline PipelineRequest FakePipeline(JobSpec spec, const std::string& schedule,
                                    std::vector<int> worker_of) {
  PipelineRequest request;
  spec.pipeline.stages = static_cast<int32_t>(worker_of.size());
  spec.pipeline.schedule = schedule;
  request.model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
  request.spec = std::move(spec);
  request.worker_of = std::move(worker_of);
  request.make_engine = MakeFake;
  request.open_data = OpenBatchSource;
  return request;
}

// A perceptron of four layers; two epochs of four batches of five micro-batches
// and one of one.
inline JobSpec FourLayerSpec() {
  JobSpec spec;
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
  return spec;
}

// Samples of `tokens`; two epochs of a batch of five micro-batches and one of
// one.
inline JobSpec SmallTokenJob(const ModelSpec& model, int64_t tokens) {
  JobSpec spec;
  spec.model = model;
  spec.data.shape = {tokens};
  spec.data.classes = 9;
  spec.data.train_samples = 27;
  spec.data.test_samples = 5;
  spec.data = WithSyntheticData(spec.model, spec.data);
  spec.train.epochs = 2;
  spec.train.batch = 25;
  spec.train.micro_batch = 5;
  spec.train.optimizer.name = "adamw";
  spec.train.learning_rate.base = 0.01;
  return spec;
}

// Every synchronous schedule ends, on each of the placements that it is made
// for, with the bytes of one stage.  Batches of five micro-batches, the last
// one of one.
inline void ExpectTheSameBytesEverywhere(
    PipelineRequest (*make)(const std::string& schedule,
                            std::vector<int> worker_of),
    const std::vector<std::vector<int>>& placements) {
  const auto alone = RunPipeline(make("gpipe", {0}));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_LT(alone->steps[alone->steps.size() - 2].loss(),
            alone->steps.front().loss());
  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved-1f1b", "zero-bubble"}) {
    for (const std::vector<int>& worker_of : placements) {
      if (!IsMadeFor(schedule, 5, worker_of)) continue;
      const auto outcome = RunPipeline(make(schedule, worker_of));

      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->weights, alone->weights)
          << schedule << " on " << worker_of.size() << " stages";
      ASSERT_EQ(outcome->steps.size(), alone->steps.size());
      for (size_t i = 0; i < alone->steps.size(); ++i) {
        EXPECT_EQ(outcome->steps[i].loss(), alone->steps[i].loss());
        EXPECT_EQ(outcome->steps[i].gradient_norm(),
                  alone->steps[i].gradient_norm());
      }
    }
  }
}

// Makes an Engine of one stage, and FakeEngines of the others.
template <typename Engine>
auto OnStage(int stage) {
  return [stage](const EngineOptions& options)
             -> absl::StatusOr<std::unique_ptr<StageEngine>> {
    if (options.stage != stage) return std::make_unique<FakeEngine>(options);
    return std::make_unique<Engine>(options);
  };
}

}  // namespace paceline
