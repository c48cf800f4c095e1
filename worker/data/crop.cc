#include "worker/data/crop.h"

#include <algorithm>
#include <cmath>

#include "core/base/errors.h"
#include "core/data/data_sets.h"

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
  return Scaled(
      {static_cast<double>(x), static_cast<double>(y),
       static_cast<double>(target.width), static_cast<double>(target.height)},
      resized, picture);
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

Box Scaled(const Box& box, ImageSize from, ImageSize to) {
  const double across = static_cast<double>(to.width) / from.width;
  const double down = static_cast<double>(to.height) / from.height;
  return {box.left * across, box.top * down, box.width * across,
          box.height * down};
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

Box Turn::InFile(Box box, ImageSize size) const {
  if (swaps()) {
    std::swap(box.left, box.top);
    std::swap(box.width, box.height);
  }
  if (flips_x()) box.left = size.width - box.left - box.width;
  if (flips_y()) box.top = size.height - box.top - box.height;
  return box;
}

void Turn::Apply(absl::Span<const float> from, ImageSize size, bool mirrored,
                 absl::Span<float> to) const {
  const auto [width, height] = Size(size);
  for (size_t i = 0; i < to.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    int64_t x = at % width, y = at / width % height;
    const int64_t plane = at / width / height;
    if (mirrored) x = width - 1 - x;
    if (swaps()) std::swap(x, y);
    if (flips_x()) x = size.width - 1 - x;
    if (flips_y()) y = size.height - 1 - y;
    to[i] = from[(plane * size.height + y) * size.width + x];
  }
}

std::vector<ChannelScale> ScalesOf(const DataSpec& data) {
  const DataSpec full = WithPixelScale(data);
  std::vector<ChannelScale> scales;
  for (size_t c = 0; c < full.mean.size(); ++c) {
    scales.push_back({static_cast<float>(full.mean[c]),
                      static_cast<float>(full.deviation[c])});
  }
  return scales;
}

namespace {

// Source pixels by weight, channel by channel, into one pixel of each plane.
template <int kChannels>
void MixPixel(const float* source, const float* weights, int64_t taps,
              float* out, int64_t plane) {
  float sum[kChannels] = {};
  for (int64_t i = 0; i < taps; ++i) {
    for (int c = 0; c < kChannels; ++c) {
      sum[c] += weights[i] * source[i * kChannels + c];
    }
  }
  for (int c = 0; c < kChannels; ++c) out[c * plane] = sum[c];
}

}  // namespace

std::vector<Resampler::Taps> Resampler::MakeTaps(double begin, double length,
                                                 int64_t source, int64_t target,
                                                 std::vector<float>& weights) {
  const double step = length / static_cast<double>(target);
  const double reach = std::max(step, 1.0);
  std::vector<Taps> all;
  std::vector<double> parts;
  for (int64_t i = 0; i < target; ++i) {
    const double center = begin + (static_cast<double>(i) + 0.5) * step;
    const auto first = static_cast<int64_t>(std::floor(center - reach + 0.5));
    const auto last = static_cast<int64_t>(std::floor(center + reach + 0.5));
    Taps taps;
    taps.begin = std::clamp<int64_t>(first, 0, source - 1);
    taps.end = std::clamp<int64_t>(last, taps.begin + 1, source);
    taps.weight = weights.size();
    parts.clear();
    double whole = 0;
    for (int64_t j = taps.begin; j < taps.end; ++j) {
      const double away = std::abs(static_cast<double>(j) + 0.5 - center);
      parts.push_back(std::max(0.0, 1 - away / reach));
      whole += parts.back();
    }
    // A box is inside of the picture, so that some pixel is near.
    for (const double part : parts) {
      weights.push_back(static_cast<float>(part / whole));
    }
    all.push_back(taps);
  }
  return all;
}

Resampler::Resampler(const ResampleOptions& options, absl::Span<float> out)
    : channels_(options.channels),
      target_(options.target),
      out_(out),
      down_(MakeTaps(options.box.top, options.box.height, options.source.height,
                     options.target.height, down_weights_)),
      across_(MakeTaps(options.box.left, options.box.width,
                       options.source.width, options.target.width,
                       across_weights_)) {
  first_column_ = across_.front().begin;
  sum_values_ = (across_.back().end - first_column_) * channels_.size();
  if (options.mirrored) std::reverse(across_.begin(), across_.end());
  // Sums of target rows are open from their first source row to their last.
  int64_t done = 0;
  for (int64_t row = 0; row < target_.height; ++row) {
    while (down_[done].end <= down_[row].begin) ++done;
    slots_ = std::max(slots_, row - done + 1);
  }
  sums_.resize(slots_ * sum_values_);
}

absl::Span<float> Resampler::SumOf(int64_t target_row) {
  return absl::MakeSpan(sums_).subspan(target_row % slots_ * sum_values_,
                                       sum_values_);
}

void Resampler::AddRow(absl::Span<const uint8_t> row) {
  const int64_t at = source_row_++;
  const uint8_t* const pixels =
      row.data() + first_column_ * static_cast<int64_t>(channels_.size());
  for (int64_t y = target_row_; y < target_.height && down_[y].begin <= at;
       ++y) {
    const Taps& taps = down_[y];
    const float weight = down_weights_[taps.weight + at - taps.begin];
    float* const sum = SumOf(y).data();
    const size_t values = sum_values_;
    if (at == taps.begin) {
      for (size_t i = 0; i < values; ++i) sum[i] = weight * pixels[i];
    } else {
      for (size_t i = 0; i < values; ++i) sum[i] += weight * pixels[i];
    }
  }
  while (target_row_ < target_.height && down_[target_row_].end == at + 1) {
    FinishRow(target_row_++);
  }
}

void Resampler::FinishRow(int64_t target_row) {
  const float* const sum = SumOf(target_row).data();
  const int64_t plane = target_.width * target_.height;
  const auto channels = static_cast<int64_t>(channels_.size());
  float* const out = out_.data() + target_row * target_.width;
  for (int64_t x = 0; x < target_.width; ++x) {
    const Taps& taps = across_[x];
    const float* const source = sum + (taps.begin - first_column_) * channels;
    const float* const weights = &across_weights_[taps.weight];
    const int64_t count = taps.end - taps.begin;
    if (channels == 3) {
      MixPixel<3>(source, weights, count, out + x, plane);
    } else {
      MixPixel<1>(source, weights, count, out + x, plane);
    }
  }
  for (int64_t c = 0; c < channels; ++c) {
    const ChannelScale scale = channels_[c];
    float* const row = out + c * plane;
    for (int64_t x = 0; x < target_.width; ++x) row[x] = scale.Of(row[x]);
  }
}

}  // namespace paceline
