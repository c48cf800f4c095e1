// Crops and how they are stretched.
#include <algorithm>
#include <cmath>

#include "tests/worker/data/data_files.h"
#include "worker/data/crop.h"

namespace paceline {
namespace {

Picture Noise(int width, int height, int channels) {
  Picture picture{width, height, channels, {}};
  SplitMix64 random(7);
  for (int i = 0; i < width * height * channels; ++i) {
    picture.values.push_back(static_cast<uint8_t>(random.Below(256)));
  }
  return picture;
}

Box WholeOf(const Picture& picture) {
  return {0, 0, static_cast<double>(picture.width),
          static_cast<double>(picture.height)};
}

// Values in [0, 255].
std::vector<float> Resample(const Picture& picture, const Box& box,
                            ImageSize target, bool mirrored = false) {
  std::vector<float> out(picture.channels * target.width * target.height, -1);
  const std::vector<ChannelScale> plain(picture.channels, {0, 1.0f / 255});
  Resampler resampler(
      {{picture.width, picture.height}, box, target, mirrored, plain},
      absl::MakeSpan(out));
  const int row = picture.width * picture.channels;
  for (int y = 0; y < picture.height; ++y) {
    resampler.AddRow(absl::MakeConstSpan(picture.values).subspan(y * row, row));
  }
  return out;
}

// The same by the formula, pixel by pixel, in double.
double Expected(const Picture& picture, const Box& box, ImageSize target,
                int channel, int64_t x, int64_t y) {
  const double across = box.width / static_cast<double>(target.width);
  const double down = box.height / static_cast<double>(target.height);
  const auto weight = [](int at, double center, double step) {
    return std::max(0.0, 1 - std::abs(at + 0.5 - center) / std::max(step, 1.0));
  };
  double sum = 0;
  double whole = 0;
  for (int j = 0; j < picture.height; ++j) {
    for (int i = 0; i < picture.width; ++i) {
      const double part =
          weight(i, box.left + (static_cast<double>(x) + 0.5) * across,
                 across) *
          weight(j, box.top + (static_cast<double>(y) + 0.5) * down, down);
      whole += part;
      sum +=
          part *
          picture.values[(j * picture.width + i) * picture.channels + channel];
    }
  }
  return sum / whole;
}

TEST(Resampler, LeavesAPictureOfTheRightSizeAsItIs) {
  const Picture noise = Noise(7, 5, 3);

  const std::vector<float> out = Resample(noise, WholeOf(noise), {7, 5});

  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 35; ++i) {
      EXPECT_NEAR(out[c * 35 + i], noise.values[i * 3 + c], 1e-4);
    }
  }
}

TEST(Resampler, IsTheTriangleFilter) {
  const Box boxes[] = {{0, 0, 23, 17},
                       {3.25, 1.5, 11.75, 9.125},
                       {20.5, 16, 2, 1},
                       {0, 0, 1, 17}};
  const ImageSize targets[] = {{8, 8}, {5, 31}, {64, 3}, {1, 1}};
  for (const int channels : {1, 3}) {
    const Picture noise = Noise(23, 17, channels);
    for (const Box& box : boxes) {
      for (const ImageSize target : targets) {
        const std::vector<float> out = Resample(noise, box, target);
        size_t at = 0;
        for (int c = 0; c < channels; ++c) {
          for (int64_t y = 0; y < target.height; ++y) {
            for (int64_t x = 0; x < target.width; ++x) {
              ASSERT_NEAR(out[at++], Expected(noise, box, target, c, x, y),
                          1e-3)
                  << box.left << " " << target.width << " " << x << "," << y;
            }
          }
        }
      }
    }
  }
}

TEST(Resampler, MirrorsFromLeftToRight) {
  const Picture noise = Noise(23, 17, 3);
  const Box box = {3.25, 1.5, 11.75, 9.125};
  const std::vector<float> plain = Resample(noise, box, {6, 4});

  std::vector<float> mirrored = Resample(noise, box, {6, 4}, true);

  EXPECT_NE(mirrored, plain);
  for (auto row = mirrored.begin(); row != mirrored.end(); row += 6) {
    std::reverse(row, row + 6);
  }
  EXPECT_EQ(mirrored, plain);
}

TEST(Resampler, ScalesEachChannelByItsOwnNumbers) {
  const Picture plain = Plain(4, 4, {51, 102, 255});
  std::vector<float> out(3);
  Resampler resampler(
      {{4, 4}, WholeOf(plain), {1, 1}, false, {{0, 1}, {0.4f, 2}, {1, 0.5f}}},
      absl::MakeSpan(out));
  for (int y = 0; y < 4; ++y) {
    resampler.AddRow(absl::MakeConstSpan(plain.values).first(12));
  }

  EXPECT_NEAR(out[0], 0.2, 1e-6);
  EXPECT_NEAR(out[1], 0, 1e-6);
  EXPECT_NEAR(out[2], 0, 1e-6);
}

TEST(Resampler, NeedsNoRowsBelowTheBox) {
  const Picture noise = Noise(8, 100, 1);
  std::vector<float> out(4);
  Resampler resampler({{8, 100}, {0, 10, 8, 20}, {2, 2}, false, {{0, 1}}},
                      absl::MakeSpan(out));

  EXPECT_GE(resampler.rows_needed(), 30);
  EXPECT_LE(resampler.rows_needed(), 41);
}

TEST(CenterBox, IsTheMiddleOfTheShorterSidesPicture) {
  // 500 x 375 becomes 341 x 256; 224 of it lie 58 and 16 pixels inside.
  const Box box = CenterBox({500, 375}, 256, {224, 224});

  EXPECT_NEAR(box.left, 58 * 500.0 / 341, 1e-9);
  EXPECT_NEAR(box.top, 16 * 375.0 / 256, 1e-9);
  EXPECT_NEAR(box.width, 224 * 500.0 / 341, 1e-9);
  EXPECT_NEAR(box.height, 224 * 375.0 / 256, 1e-9);
}

TEST(CenterBox, OfAnOddMarginIsTorchvisions) {
  // int(round(31 / 2.0)) is 16, int(round(29 / 2.0)) is 14.
  const Box box = CenterBox({256, 256}, 256, {225, 227});

  EXPECT_EQ(box.left, 16);
  EXPECT_EQ(box.top, 14);
}

bool IsInside(const Box& box, ImageSize picture) {
  constexpr double kRounding = 1e-6;
  return box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&
         box.left + box.width <=
             static_cast<double>(picture.width) + kRounding &&
         box.top + box.height <=
             static_cast<double>(picture.height) + kRounding;
}

TEST(Crops, LieInsideOfEveryPicture) {
  for (const ImageSize picture :
       {ImageSize{500, 375}, ImageSize{1, 1}, ImageSize{1, 4000},
        ImageSize{4000, 1}, ImageSize{3, 2}, ImageSize{224, 224}}) {
    for (int64_t sample = 0; sample < 200; ++sample) {
      SplitMix64 random = AugmentationOf(1, 0, sample);
      SCOPED_TRACE(absl::StrCat(picture.width, " x ", picture.height));
      EXPECT_TRUE(IsInside(CenterBox(picture, 256, {224, 160}), picture));
      EXPECT_TRUE(
          IsInside(RandomBox(picture, 256, {224, 160}, random), picture));
      EXPECT_TRUE(IsInside(RandomResizedBox(picture, random), picture));
    }
  }
}

TEST(RandomResizedBox, HasTheAreasAndRatiosOfThePaper) {
  double least_area = 1, most_area = 0, least_ratio = 9, most_ratio = 0;
  for (int64_t sample = 0; sample < 2000; ++sample) {
    SplitMix64 random = AugmentationOf(1, 0, sample);
    const Box box = RandomResizedBox({1000, 1000}, random);
    least_area = std::min(least_area, box.width * box.height / 1e6);
    most_area = std::max(most_area, box.width * box.height / 1e6);
    least_ratio = std::min(least_ratio, box.width / box.height);
    most_ratio = std::max(most_ratio, box.width / box.height);
  }

  EXPECT_NEAR(least_area, 0.08, 0.01);
  EXPECT_GT(most_area, 0.9);
  EXPECT_NEAR(least_ratio, 3.0 / 4, 0.01);
  EXPECT_NEAR(most_ratio, 4.0 / 3, 0.01);
}

TEST(Augmentation, IsDrawnFromSeedEpochAndSample) {
  const auto first = [](int64_t seed, int64_t epoch, int64_t sample) {
    return AugmentationOf(seed, epoch, sample).Next();
  };
  EXPECT_EQ(first(1, 2, 3), first(1, 2, 3));
  EXPECT_NE(first(1, 2, 3), first(2, 2, 3));
  EXPECT_NE(first(1, 2, 3), first(1, 3, 3));
  EXPECT_NE(first(1, 2, 3), first(1, 2, 4));
}

}  // namespace
}  // namespace paceline
