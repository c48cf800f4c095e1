// Jobs for a whole pipeline in one process, without LibTorch.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/catalog.h"
#include "tests/support/fake_engine.h"
#include "tests/support/pipeline_harness.h"
#include "worker/data/open.h"

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

}  // namespace paceline
