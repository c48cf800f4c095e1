// The first test samples of a set, as if there were no more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "worker/data/sample_set.h"

namespace paceline {

class FirstSamples final : public SampleSet {
 public:
  // most: of the test split; 0: all.
  FirstSamples(std::unique_ptr<const SampleSet> all, int64_t most)
      : all_(std::move(all)), most_(most) {}

  int64_t samples(BatchPhase split) const override {
    const int64_t there = all_->samples(split);
    return split == BatchPhase::kEvaluate && most_ > 0 ? std::min(most_, there)
                                                       : there;
  }
  const SampleFormat& format() const override { return all_->format(); }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override {
    return all_->Load(place, inputs, labels);
  }
  int64_t unreadable() const override { return all_->unreadable(); }

 private:
  const std::unique_ptr<const SampleSet> all_;
  const int64_t most_;
};

}  // namespace paceline
