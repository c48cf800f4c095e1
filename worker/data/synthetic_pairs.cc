#include "worker/data/synthetic_pairs.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/base/random.h"
#include "worker/data/sentence_pair.h"

namespace paceline {
namespace {

constexpr uint64_t kAlphabetStream = 7;
constexpr uint64_t kPairStream = 8;

}  // namespace

SyntheticPairs::SyntheticPairs(const DataSpec& data, int64_t seed)
    : data_(data), format_(FormatOf(data)), seed_(seed) {
  alphabet_.resize(data.classes - kFirstWordToken);
  std::iota(alphabet_.begin(), alphabet_.end(), kFirstWordToken);
  SplitMix64 random(MixSeed({kAlphabetStream, static_cast<uint64_t>(seed)}));
  for (size_t i = alphabet_.size(); i-- > 1;) {  // Fisher and Yates
    std::swap(alphabet_[i], alphabet_[random.Below(i + 1)]);
  }
}

int64_t SyntheticPairs::samples(BatchPhase split) const {
  return split == BatchPhase::kTrain ? data_.train_samples : data_.test_samples;
}

absl::Status SyntheticPairs::Load(const MicroBatchPlace& place, Tensor& inputs,
                                  Tensor& labels) const {
  const int64_t block = data_.block;
  const int64_t words = static_cast<int64_t>(alphabet_.size());
  const int64_t most = block - 1;
  const int64_t least = block / 2;
  std::vector<int64_t> source, target;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    SplitMix64 random(MixSeed({kPairStream, static_cast<uint64_t>(seed_),
                               static_cast<uint64_t>(place.split),
                               static_cast<uint64_t>(place.indices[i])}));
    source.resize(least + static_cast<int64_t>(random.Below(most - least + 1)));
    for (int64_t& word : source) {
      word = kFirstWordToken + static_cast<int64_t>(random.Below(words));
    }
    target.clear();
    std::transform(source.rbegin(), source.rend(), std::back_inserter(target),
                   [this](int64_t word) { return Translate(word); });
    WritePair(source, target,
              inputs.As<int64_t>().subspan(2 * i * block, 2 * block),
              labels.As<int64_t>().subspan(i * block, block));
  }
  return absl::OkStatus();
}

}  // namespace paceline
