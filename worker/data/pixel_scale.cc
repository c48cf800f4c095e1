#include "worker/data/pixel_scale.h"

namespace paceline {

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
