// A data set, walked: the BatchSource of every data set.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/model/batch.h"
#include "core/model/job_spec.h"
#include "worker/batch_source.h"
#include "worker/data/prefetcher.h"
#include "worker/data/sample_set.h"

namespace paceline {

// Thread-compatible.
class WalkSource final : public BatchSource {
 public:
  // samples has at least one training sample.  prefetch_threads >= 0.
  //   turns  the batches that this worker takes
  WalkSource(const TrainSpec& train, std::unique_ptr<const SampleSet> samples,
             int prefetch_threads, Turns turns = {});

  int64_t total_steps() const override { return walk_.total_steps(); }
  int64_t test_samples() const override { return test_samples_; }
  // Micro-batches of the last batch that were not asked for are dropped.
  absl::StatusOr<std::optional<BatchInfo>> NextBatch() override;
  absl::StatusOr<TensorList> NextMicroBatch() override;
  int64_t unreadable() const override { return prefetcher_.unreadable(); }

 private:
  const Turns turns_;
  const int64_t test_samples_;
  BatchWalk walk_;
  int remaining_ = 0;  // micro-batches of the last batch
  Prefetcher prefetcher_;
};

}  // namespace paceline
