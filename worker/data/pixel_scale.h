// From bytes of pixels to what a model sees.
#pragma once

#include <vector>

#include "absl/types/span.h"

namespace paceline {

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
