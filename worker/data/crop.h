// Which part of a picture a sample shows, and in which numbers: pure rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/random.h"
#include "worker/data/image_reader.h"

namespace paceline {

// A part of a picture, in its pixels; fractions are meant.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

// How training cuts a sample out of a picture.
enum class Crop : uint8_t {
  kCenter,
  kRandom,         // the same size, anywhere
  kRandomResized,  // any part of it, stretched
};

// "center", "random", "random-resized", which CheckDataSpec() has checked.
Crop CropOf(const std::string& name);

// Randomness of one sample in one epoch: the same whatever else is drawn.
SplitMix64 AugmentationOf(int64_t seed, int64_t epoch, int64_t sample);

// The middle of a picture whose shorter side was made `resize` long:
// `target` pixels of it, those that torchvision's CenterCrop takes.  target
// fits into resize x resize.
Box CenterBox(ImageSize picture, int64_t resize, ImageSize target);

// The same, anywhere.
Box RandomBox(ImageSize picture, int64_t resize, ImageSize target,
              SplitMix64& random);

// A part of 0.08 to 1 of the picture's area, its width 3/4 to 4/3 of its
// height (Szegedy et al. 2015, section 6); ten tries, then the middle.  Its
// numbers are torchvision's; the ratio is uniform in [3/4, 1] or its inverse,
// not log-uniform: logarithms differ in their last bit from libc to libc.
Box RandomResizedBox(ImageSize picture, SplitMix64& random);

// Of the values of one channel, which lie in [0, 1].  A value.
struct ChannelScale {
  float mean = 0;
  float deviation = 1;

  // pixel: in [0, 255].
  float Of(float pixel) const { return (pixel / 255.0f - mean) / deviation; }
};

// One for each channel; `mean` and `deviation` hold one number, or one a
// channel.
std::vector<ChannelScale> MakeChannelScales(int channels,
                                            absl::Span<const double> mean,
                                            absl::Span<const double> deviation);

}  // namespace paceline
