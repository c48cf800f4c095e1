#include "worker/data/synthetic_set.h"

#include "core/base/random.h"
#include "worker/data/synthetic_values.h"

namespace paceline {
namespace {

constexpr uint64_t kTemplateStream = 1;
constexpr uint64_t kSampleStream = 2;

}  // namespace

SyntheticSet::SyntheticSet(const DataSpec& data, int64_t seed)
    : data_(data),
      format_(FormatOf(data)),
      seed_(seed),
      values_per_sample_(NumElements(data.shape)) {}

int64_t SyntheticSet::samples(BatchPhase split) const {
  return split == BatchPhase::kTrain ? data_.train_samples : data_.test_samples;
}

absl::Status SyntheticSet::Load(const MicroBatchPlace& place, Tensor& inputs,
                                Tensor& labels) const {
  for (size_t i = 0; i < place.indices.size(); ++i) {
    SplitMix64 random(MixSeed({kSampleStream, static_cast<uint64_t>(seed_),
                               static_cast<uint64_t>(place.split),
                               static_cast<uint64_t>(place.indices[i])}));
    int64_t& label = labels.As<int64_t>()[i];
    label = static_cast<int64_t>(random.Below(data_.classes));
    // Drawn again for every sample: a thousand classes of photographs would
    // fill half a gigabyte.
    SplitMix64 pattern(
        MixSeed({kTemplateStream, static_cast<uint64_t>(seed_)}));
    pattern.Skip(label *
                 ((values_per_sample_ + kValuesADraw - 1) / kValuesADraw));
    WaysToMixValues().back()(
        pattern, random,
        inputs.As<float>().subspan(i * values_per_sample_, values_per_sample_));
  }
  return absl::OkStatus();
}

}  // namespace paceline
