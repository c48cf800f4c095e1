#include "worker/data/synthetic_labels.h"

#include <algorithm>

#include "core/base/random.h"

namespace paceline {
namespace {

constexpr uint64_t kPreferenceStream = 5;
constexpr uint64_t kSampleStream = 6;
constexpr int64_t kPreferred = 8;  // tokens of a class

}  // namespace

SyntheticLabels::SyntheticLabels(const DataSpec& data, int64_t seed)
    : data_(data), format_(FormatOf(data)), seed_(seed) {}

int64_t SyntheticLabels::samples(BatchPhase split) const {
  return split == BatchPhase::kTrain ? data_.train_samples : data_.test_samples;
}

absl::Status SyntheticLabels::Load(const MicroBatchPlace& place, Tensor& inputs,
                                   Tensor& labels) const {
  const int64_t block = data_.block;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    SplitMix64 random(MixSeed({kSampleStream, static_cast<uint64_t>(seed_),
                               static_cast<uint64_t>(place.split),
                               static_cast<uint64_t>(place.indices[i])}));
    const auto below = [&](int64_t end) {
      return static_cast<int64_t>(random.Below(end));
    };
    const int64_t label = below(data_.classes);
    labels.As<int64_t>()[i] = label;
    const auto tokens = inputs.As<int64_t>().subspan(i * block, block);
    const int64_t length = block - below(block / 2 + 1);
    for (int64_t j = 0; j < length; ++j) {
      const bool anything = below(4) == 0;
      SplitMix64 preference(
          MixSeed({kPreferenceStream, static_cast<uint64_t>(seed_),
                   static_cast<uint64_t>(label),
                   static_cast<uint64_t>(below(kPreferred))}));
      SplitMix64& source = anything ? random : preference;
      tokens[j] =
          TokenOf(static_cast<int64_t>(source.Below(data_.vocabulary - 1)));
    }
    std::fill(tokens.begin() + length, tokens.end(), data_.padding);
  }
  return absl::OkStatus();
}

}  // namespace paceline
