// Stretches a part of a picture to a sample's size while its rows come in.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/crop.h"
#include "worker/data/image_reader.h"

namespace paceline {

struct ResampleOptions {
  ImageSize source;
  Box box;  // of the source
  ImageSize target;
  bool mirrored = false;               // left becomes right
  std::vector<ChannelScale> channels;  // 1 or 3
};

// Linear interpolation where a picture grows, and its triangle as wide as a
// target's pixel where it shrinks (what Pillow calls bilinear).  Pixels just
// outside of the box have their part at its edges.  Sums are float32, in one
// order: the same bytes on every machine.  Thread-compatible.
class Resampler {
 public:
  // out: [channels, target.height, target.width], which outlives this.  Every
  // value of it is written once the last row was taken.
  Resampler(const ResampleOptions& options, absl::Span<float> out);

  // The source's rows, from the top, each [source.width, channels]; all of
  // them, or at least rows_needed().
  void AddRow(absl::Span<const uint8_t> row);

  int64_t rows_needed() const { return down_.back().end; }

 private:
  // Which of the source's pixels a target's pixel is made of.
  struct Taps {
    int64_t begin = 0;
    int64_t end = 0;
    size_t weight = 0;  // of `begin`, in a list of all weights
  };

  static std::vector<Taps> MakeTaps(double begin, double length, int64_t source,
                                    int64_t target,
                                    std::vector<float>& weights);
  void FinishRow(int64_t target_row);
  absl::Span<float> SumOf(int64_t target_row);

  const std::vector<ChannelScale> channels_;
  const ImageSize target_;
  const absl::Span<float> out_;
  std::vector<float> across_weights_;
  std::vector<float> down_weights_;
  const std::vector<Taps> down_;
  std::vector<Taps> across_;  // in the order of the target's pixels
  int64_t first_column_ = 0;  // of the source that any tap wants
  size_t sum_values_ = 0;     // of one row's sum
  int64_t slots_ = 0;
  std::vector<float> sums_;  // [slots, columns, channels]
  int64_t source_row_ = 0;   // the next
  int64_t target_row_ = 0;   // the first that is not done
};

}  // namespace paceline
