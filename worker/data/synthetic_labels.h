// Tokens with a label a sample that need no files: each class prefers some
// tokens, so that a model can learn it and tests can tell whether it did.
#pragma once

#include <cstdint>

#include "core/model/job_spec.h"
#include "worker/data/sample_set.h"

namespace paceline {

// Immutable.  Every sample is drawn from (seed, split, index) alone, the tokens
// of a class from the seed.  A sample has from half a block to a whole one, and
// data.padding behind.
class SyntheticLabels final : public SampleSet {
 public:
  // data: train_samples, test_samples, block, classes, vocabulary and padding,
  // all valid (CheckDataSpec).
  SyntheticLabels(const DataSpec& data, int64_t seed);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

 private:
  // Any token but the padding, out of a number drawn below vocabulary - 1.
  int64_t TokenOf(int64_t drawn) const {
    return drawn < data_.padding ? drawn : drawn + 1;
  }

  const DataSpec data_;
  const SampleFormat format_;
  const int64_t seed_;
};

}  // namespace paceline
