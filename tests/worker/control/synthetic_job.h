// A job on small synthetic images.
#pragma once

#include "core/job/spec/job_spec.h"

namespace paceline {

// 50 samples in batches of 16 and micro-batches of 5, neither of which fits;
// 17 for evaluation.
inline JobSpec SyntheticJob(int loader_threads) {
  JobSpec spec;
  spec.data.name = "synthetic";
  spec.data.train_samples = 50;
  spec.data.test_samples = 17;
  spec.data.shape = {1, 3, 3};
  spec.data.classes = 4;
  spec.data.workers = loader_threads;
  spec.train.epochs = 3;
  spec.train.batch = 16;
  spec.train.micro_batch = 5;
  return spec;
}

}  // namespace paceline
