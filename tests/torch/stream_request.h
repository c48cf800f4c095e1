// Small jobs without a flush, over LibTorch's engine.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/model/description.h"
#include "tests/support/pipeline/pipeline_harness.h"
#include "worker/data/sample_set.h"
#include "worker/torch/engine.h"

namespace paceline {

inline PipelineRequest StreamRequest(const std::string& model,
                                     std::vector<int> worker_of) {
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

}  // namespace paceline
