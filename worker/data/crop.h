// Which part of a picture a sample shows, and in which numbers: pure rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/random.h"
#include "core/job/spec/job_spec.h"
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

// `box` of a picture of size `from`, where that has size `to`.
Box Scaled(const Box& box, ImageSize from, ImageSize to);

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

// How a camera was held (Exif's orientation, 1 to 8): a picture is to be seen
// with its axes swapped where it is 5 or more, and then reversed.  A value.
class Turn {
 public:
  explicit Turn(int orientation) : orientation_(orientation) {}

  bool is_none() const { return orientation_ == 1; }
  // The size of what is seen, where the file has `size`, or the other way
  // round.
  ImageSize Size(ImageSize size) const {
    return swaps() ? ImageSize{size.height, size.width} : size;
  }
  // Where the file, a picture of `size`, has what is seen in `box`.
  Box InFile(Box box, ImageSize size) const;
  // Writes plane after plane as it is seen.
  //   from  planes of `size`, as in the file
  void Apply(absl::Span<const float> from, ImageSize size, bool mirrored,
             absl::Span<float> to) const;

 private:
  bool swaps() const { return orientation_ >= 5; }
  // The file's axes that run the other way.
  bool flips_x() const {
    return orientation_ == 2 || orientation_ == 3 || orientation_ == 7 ||
           orientation_ == 8;
  }
  bool flips_y() const {
    return orientation_ == 3 || orientation_ == 4 || orientation_ == 6 ||
           orientation_ == 7;
  }

  int orientation_;
};

// Scales the values of one channel, which lie in [0, 1].  A value.
struct ChannelScale {
  float mean = 0;
  float deviation = 1;

  // pixel: in [0, 255].
  float Of(float pixel) const { return (pixel / 255.0f - mean) / deviation; }
};

// One for each channel, as the job or else its data set says.
std::vector<ChannelScale> ScalesOf(const DataSpec& data);

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
