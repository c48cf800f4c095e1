// Pairs of sentences that need no files: the target is the source backwards, in
// another alphabet, so that a model can learn it and tests can tell whether it
// did.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/job_spec.h"
#include "worker/data/sample_set.h"

namespace paceline {

// Immutable.  Every source is drawn from (seed, split, index) alone, the
// alphabet from the seed.  A source has from half a block to one token less
// than a block.
class SyntheticPairs final : public SampleSet {
 public:
  // data: train_samples, test_samples, block and classes, all valid
  // (CheckDataSpec).
  SyntheticPairs(const DataSpec& data, int64_t seed);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

  // What stands in a target for `word` of a source; both are at least
  // kFirstWordToken and below classes, and no two words have the same.
  int64_t Translate(int64_t word) const {
    return alphabet_[word - kFirstWordToken];
  }

 private:
  const DataSpec data_;
  const SampleFormat format_;
  const int64_t seed_;
  std::vector<int64_t> alphabet_;  // constant once made
};

}  // namespace paceline
