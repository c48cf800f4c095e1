// Tokens that need no files: each has a successor that mostly follows it, so
// that a model can learn it and tests can tell whether it did.
#pragma once

#include <cstdint>

#include "core/model/job_spec.h"
#include "worker/data/sample_set.h"

namespace paceline {

// Immutable.  Every sample is drawn from (seed, split, index) alone; the
// successors from the seed.
class SyntheticTokens final : public SampleSet {
 public:
  // data: train_samples, test_samples, block and classes, all valid
  // (CheckDataSpec).
  SyntheticTokens(const DataSpec& data, int64_t seed);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

  // What follows `token` three times out of four, and now and then by chance.
  int64_t SuccessorOf(int64_t token) const;

 private:
  const DataSpec data_;
  const SampleFormat format_;
  const int64_t seed_;
};

}  // namespace paceline
