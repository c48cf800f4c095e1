// The walk of a job in its smallest pieces: which samples each micro-batch
// takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/model/batch.h"
#include "core/model/job_spec.h"
#include "core/schedule/route.h"
#include "worker/data/sample_set.h"

namespace paceline {

// Which samples a micro-batch of a batch takes.  Thread-compatible.
class MicroBatchPlaces {
 public:
  // train_samples > 0.
  MicroBatchPlaces(const TrainSpec& train, int64_t train_samples)
      : train_(train), train_samples_(train_samples) {}

  // O(its samples), and O(train_samples) where the epoch is not that of the
  // call before.
  MicroBatchPlace Of(const WalkBatch& batch, int micro_batch);

 private:
  const TrainSpec train_;
  const int64_t train_samples_;
  int64_t epoch_ = -1;          // whose order_ this is
  std::vector<int32_t> order_;  // [train_samples]
};

// Thread-compatible.
class MicroBatchWalk {
 public:
  // train_samples > 0, test_samples >= 0.
  //   turns  the batches that are walked; the default: all
  MicroBatchWalk(const TrainSpec& train, int64_t train_samples,
                 int64_t test_samples, Turns turns = {});

  // The next micro-batch; nothing after the last one of the job.  O(its
  // samples), and O(train_samples) when an epoch begins.
  std::optional<MicroBatchPlace> Next();

 private:
  const Turns turns_;
  BatchWalk walk_;
  MicroBatchPlaces places_;
  std::optional<WalkBatch> batch_;
  int next_micro_batch_ = 0;
};

}  // namespace paceline
