#include "worker/data/synthetic_tokens.h"

#include <algorithm>

#include "core/base/random.h"

namespace paceline {
namespace {

constexpr uint64_t kSuccessorStream = 3;
constexpr uint64_t kTokenStream = 4;

}  // namespace

SyntheticTokens::SyntheticTokens(const DataSpec& data, int64_t seed)
    : data_(data), format_(FormatOf(data)), seed_(seed) {}

int64_t SyntheticTokens::samples(BatchPhase split) const {
  return split == BatchPhase::kTrain ? data_.train_samples : data_.test_samples;
}

int64_t SyntheticTokens::SuccessorOf(int64_t token) const {
  SplitMix64 random(MixSeed({kSuccessorStream, static_cast<uint64_t>(seed_),
                             static_cast<uint64_t>(token)}));
  return static_cast<int64_t>(random.Below(data_.classes));
}

absl::Status SyntheticTokens::Load(const MicroBatchPlace& place, Tensor& inputs,
                                   Tensor& labels) const {
  const int64_t block = data_.block;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    SplitMix64 random(MixSeed({kTokenStream, static_cast<uint64_t>(seed_),
                               static_cast<uint64_t>(place.split),
                               static_cast<uint64_t>(place.indices[i])}));
    const auto anything = [&] {
      return static_cast<int64_t>(random.Below(data_.classes));
    };
    const auto input = inputs.As<int64_t>().subspan(i * block, block);
    const auto label = labels.As<int64_t>().subspan(i * block, block);
    int64_t token = anything();
    for (int64_t j = 0; j < block; ++j) {
      input[j] = token;
      token = random.Below(4) == 0 ? anything() : SuccessorOf(token);
      label[j] = token;
    }
  }
  return absl::OkStatus();
}

}  // namespace paceline
