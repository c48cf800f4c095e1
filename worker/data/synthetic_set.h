// A data set that needs no files: one random template a class, plus noise, so
// that a model can learn it and tests can tell whether it did.
#pragma once

#include <cstdint>

#include "core/model/job_spec.h"
#include "worker/data/sample_set.h"

namespace paceline {

// Immutable.  Every sample is drawn from (seed, split, index) alone.
class SyntheticSet final : public SampleSet {
 public:
  // data: train_samples, test_samples, shape and classes, all valid
  // (CheckJobSpec).
  SyntheticSet(const DataSpec& data, int64_t seed);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

 private:
  const DataSpec data_;
  const SampleFormat format_;
  const int64_t seed_;
  const int64_t values_per_sample_;
};

}  // namespace paceline
