#include "worker/data/synthetic_set.h"

#include <algorithm>

#include "core/base/random.h"

namespace paceline {
namespace {

constexpr uint64_t kTemplateStream = 1;
constexpr uint64_t kSampleStream = 2;
constexpr float kNoise = 0.5f;  // amplitude; the templates have 1

// Numbers uniform in [-1, 1), in steps of 2^-15: four of them from every draw,
// so that making a sample up takes little of what computing it does.
constexpr int64_t kADraw = 4;

float Signed(uint64_t draw, int64_t which) {
  return static_cast<float>(static_cast<int16_t>(draw >> (16 * which))) *
         0x1.0p-15f;
}

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
    pattern.Skip(label * ((values_per_sample_ + kADraw - 1) / kADraw));
    float* sample = inputs.As<float>().data() + i * values_per_sample_;
    for (int64_t j = 0; j < values_per_sample_; j += kADraw) {
      const uint64_t shape = pattern.Next();
      const uint64_t noise = random.Next();
      const int64_t here = std::min(kADraw, values_per_sample_ - j);
      for (int64_t k = 0; k < here; ++k) {
        sample[j + k] = Signed(shape, k) + kNoise * Signed(noise, k);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace paceline
