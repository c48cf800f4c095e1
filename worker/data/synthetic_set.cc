#include "worker/data/synthetic_set.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/random.h"

namespace paceline {
namespace {

constexpr uint64_t kTemplateStream = 1;
constexpr uint64_t kSampleStream = 2;
constexpr float kNoise = 0.5f;  // amplitude; the templates have 1

// Numbers uniform in [-1, 1), in steps of 2^-15: four of them from every draw,
// so that making a sample up takes little of what computing it does.
constexpr int64_t kADraw = 4;

// Drawn so many at a time, and then mixed: two loops that compilers make wide.
constexpr int64_t kRun = 1024;

static_assert(std::endian::native == std::endian::little,
              "the first value of a draw is its lowest 16 bits");

void Draw(SplitMix64& random, int64_t values, int16_t* drawn) {
  for (int64_t i = 0; i < values; i += kADraw) {
    const uint64_t draw = random.Next();
    std::memcpy(drawn + i, &draw, sizeof(draw));
  }
}

// values[i] = pattern + kNoise * noise, each in [-1, 1)
void Mix(const int16_t* __restrict pattern, const int16_t* __restrict noise,
         int64_t count, float* __restrict values) {
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(pattern[i]) * 0x1.0p-15f +
                kNoise * (static_cast<float>(noise[i]) * 0x1.0p-15f);
  }
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
    int16_t shape[kRun], noise[kRun];
    for (int64_t j = 0; j < values_per_sample_; j += kRun) {
      const int64_t count = std::min(kRun, values_per_sample_ - j);
      Draw(pattern, count, shape);
      Draw(random, count, noise);
      Mix(shape, noise, count, sample + j);
    }
  }
  return absl::OkStatus();
}

}  // namespace paceline
