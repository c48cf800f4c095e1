#include "worker/data/crop.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace paceline {
namespace {

// Keeps augmentation's stream apart from others drawn from the same numbers.
constexpr uint64_t kAugmentStream = 0x6175676d656e74;  // "augment"

constexpr int kTries = 10;
constexpr double kLeastArea = 0.08;
constexpr double kLeastRatio = 0.75;

// The size of a picture whose shorter side becomes `resize`.
ImageSize Resized(ImageSize picture, int64_t resize) {
  const int64_t shorter = std::min(picture.width, picture.height);
  return {std::max(resize, picture.width * resize / shorter),
          std::max(resize, picture.height * resize / shorter)};
}

// Half of a margin: half to even, as torchvision's int(round(margin / 2.0)).
int64_t Half(int64_t margin) {
  const int64_t half = margin / 2;
  return half + (margin % 2 != 0 && half % 2 != 0);
}

// `target` pixels from (x, y) on of the resized picture, in the picture's own.
Box BoxAt(ImageSize picture, ImageSize resized, int64_t x, int64_t y,
          ImageSize target) {
  const double across = static_cast<double>(picture.width) / resized.width;
  const double down = static_cast<double>(picture.height) / resized.height;
  return {x * across, y * down, target.width * across, target.height * down};
}

Box WholeOfRatio(ImageSize picture) {
  const auto width = static_cast<double>(picture.width);
  const auto height = static_cast<double>(picture.height);
  const double w = std::min(width, height / kLeastRatio);
  const double h = std::min(height, width / kLeastRatio);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

}  // namespace

Crop CropOf(const std::string& name) {
  if (name == "center") return Crop::kCenter;
  if (name == "random") return Crop::kRandom;
  PACELINE_CHECK(name == "random-resized", name);
  return Crop::kRandomResized;
}

SplitMix64 AugmentationOf(int64_t seed, int64_t epoch, int64_t sample) {
  return SplitMix64(
      MixSeed({kAugmentStream, static_cast<uint64_t>(seed),
               static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample)}));
}

Box CenterBox(ImageSize picture, int64_t resize, ImageSize target) {
  const ImageSize resized = Resized(picture, resize);
  return BoxAt(picture, resized, Half(resized.width - target.width),
               Half(resized.height - target.height), target);
}

Box RandomBox(ImageSize picture, int64_t resize, ImageSize target,
              SplitMix64& random) {
  const ImageSize resized = Resized(picture, resize);
  const int64_t x = random.Below(resized.width - target.width + 1);
  const int64_t y = random.Below(resized.height - target.height + 1);
  return BoxAt(picture, resized, x, y, target);
}

Box RandomResizedBox(ImageSize picture, SplitMix64& random) {
  const double area = static_cast<double>(picture.width) * picture.height;
  for (int i = 0; i < kTries; ++i) {
    const double part = area * (kLeastArea + (1 - kLeastArea) * random.Unit());
    const double narrow = kLeastRatio + (1 - kLeastRatio) * random.Unit();
    const double ratio = random.Below(2) == 0 ? narrow : 1 / narrow;
    const auto width = static_cast<int64_t>(std::sqrt(part * ratio) + 0.5);
    const auto height = static_cast<int64_t>(std::sqrt(part / ratio) + 0.5);
    if (width < 1 || height < 1) continue;
    if (width > picture.width || height > picture.height) continue;
    const uint64_t left = random.Below(picture.width - width + 1);
    const uint64_t top = random.Below(picture.height - height + 1);
    return {static_cast<double>(left), static_cast<double>(top),
            static_cast<double>(width), static_cast<double>(height)};
  }
  return WholeOfRatio(picture);
}

std::vector<ChannelScale> MakeChannelScales(
    int channels, absl::Span<const double> mean,
    absl::Span<const double> deviation) {
  const auto of = [](absl::Span<const double> values, int channel) {
    return values[values.size() == 1 ? 0 : channel];
  };
  std::vector<ChannelScale> scales;
  for (int c = 0; c < channels; ++c) {
    scales.push_back({static_cast<float>(of(mean, c)),
                      static_cast<float>(of(deviation, c))});
  }
  return scales;
}

}  // namespace paceline
