// Data sets that need no files.  A model can learn each, and a test can tell
// whether it did.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/base/random.h"
#include "core/data/data_sets.h"
#include "core/job/spec/job_spec.h"
#include "worker/data/sample_set.h"

namespace paceline {

// The four synthetic sets.  Every sample is drawn from (seed, split, index)
// alone.  Immutable.
//   images   one random template a class, plus noise
//   tokens   each token has a successor that mostly follows it
//   labels   a label a sample; each class prefers some tokens.  A sample has
//            from half a block of tokens to a whole one, and data.padding
//            behind
//   pairs    the target is the source backwards, in an alphabet drawn from the
//            seed.  A source has from half a block to one token less than a
//            block
class SyntheticSet final : public SampleSet {
 public:
  // data: valid (CheckDataSpec); its data set's kind is that of the samples.
  SyntheticSet(const DataSpec& data, int64_t seed);

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

  // Tokens: the one after `token` three times out of four, and now and then by
  // chance.
  int64_t SuccessorOf(int64_t token) const;
  // Pairs: the word of a target for `word` of a source; both are at least
  // kFirstWordToken and below classes, and no two words have the same.
  int64_t Translate(int64_t word) const {
    return alphabet_[word - kFirstWordToken];
  }

 private:
  // Each writes sample i of the tensors.
  using Make = void (SyntheticSet::*)(SplitMix64& random, size_t i,
                                      Tensor& inputs, Tensor& labels) const;
  void MakeImage(SplitMix64& random, size_t i, Tensor& inputs,
                 Tensor& labels) const;
  void MakeTokens(SplitMix64& random, size_t i, Tensor& inputs,
                  Tensor& labels) const;
  void MakeLabelled(SplitMix64& random, size_t i, Tensor& inputs,
                    Tensor& labels) const;
  void MakePair(SplitMix64& random, size_t i, Tensor& inputs,
                Tensor& labels) const;

  const DataSpec data_;
  const uint64_t seed_;
  const SampleKind kind_;
  std::vector<int64_t> alphabet_;  // constant once made
};

// values[i] = pattern + noise / 2, both from their own source, uniform in
// [-1, 1) in steps of 2^-15.
using MixValues = void (*)(SplitMix64& pattern, SplitMix64& noise,
                           absl::Span<float> values);

// The ways to do so on this CPU, the quickest one last.  All give the same
// bytes: every product and sum is exact.  The first stage has the loader, and a
// plain loop over four pictures of 224 x 224 takes 0.5 ms of its CPU; with AVX2
// 0.26, with AVX-512 0.12 (2026-11).
const std::vector<MixValues>& WaysToMixValues();

}  // namespace paceline
