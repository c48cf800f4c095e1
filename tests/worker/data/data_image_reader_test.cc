// Pictures, good and bad, out of bytes.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include "core/base/errors.h"
#include "gmock/gmock.h"
#include "tests/support/status_checks.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/image_reader.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

absl::Span<const uint8_t> Bytes(const std::string& file) {
  return {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
}

// All that a loader does with a file.
absl::StatusOr<Picture> Decode(const std::string& file, int channels = 3,
                               int most_shrink = 1) {
  PACELINE_ASSIGN_OR_RETURN(const auto reader,
                            OpenImage(Bytes(file), channels));
  PACELINE_ASSIGN_OR_RETURN(const ImageSize size, reader->Start(most_shrink));
  Picture picture{static_cast<int>(size.width),
                  static_cast<int>(size.height),
                  channels,
                  {}};
  std::vector<uint8_t> row(size.width * channels);
  for (int64_t y = 0; y < size.height; ++y) {
    PACELINE_RETURN_IF_ERROR(reader->ReadRow(absl::MakeSpan(row)));
    picture.values.insert(picture.values.end(), row.begin(), row.end());
  }
  PACELINE_RETURN_IF_ERROR(reader->Finish());
  return picture;
}

std::string Refusal(const std::string& file) {
  const auto picture = Decode(file);
  EXPECT_EQ(picture.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(picture.status().message());
}

// The greatest difference of two values.
int Distance(const Picture& a, const Picture& b) {
  EXPECT_EQ(a.values.size(), b.values.size());
  int most = 0;
  for (size_t i = 0; i < std::min(a.values.size(), b.values.size()); ++i) {
    most = std::max(most, std::abs(a.values[i] - b.values[i]));
  }
  return most;
}

std::string Big16(int value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value)};
}

// The JPEG with another size in its header.
std::string WithSize(std::string jpeg, int width, int height) {
  for (size_t at = 0; at + 9 < jpeg.size(); ++at) {
    const auto marker = static_cast<uint8_t>(jpeg[at + 1]);
    const bool frame = marker == 0xc0 || marker == 0xc2;
    if (static_cast<uint8_t>(jpeg[at]) != 0xff || !frame) continue;
    return jpeg.replace(at + 5, 4, Big16(height) + Big16(width));
  }
  ADD_FAILURE() << "no frame header";
  return jpeg;
}

// The PNG with another size, and a checksum that fits it.
std::string WithPngSize(std::string png, int width, int height) {
  const auto big32 = [](uint32_t value) {
    return Big16(static_cast<int>(value >> 16)) +
           Big16(static_cast<int>(value & 0xffff));
  };
  png.replace(16, 8, big32(width) + big32(height));
  const auto* const header = reinterpret_cast<const Bytef*>(&png[12]);
  return png.replace(29, 4, big32(crc32(0, header, 17)));
}

TEST(OpenImage, ReadsColoursOfAJpeg) {
  const Picture slope = Slope(50, 37);
  for (const bool progressive : {false, true}) {
    const Picture read = Value(Decode(EncodeJpeg(slope, {progressive})));

    EXPECT_EQ(read.width, 50);
    EXPECT_EQ(read.height, 37);
    EXPECT_LT(Distance(read, slope), 12) << progressive;
  }
}

TEST(OpenImage, GivesAsManyChannelsAsAskedFor) {
  const Picture grey = Plain(9, 5, {80});
  const Picture red = Plain(9, 5, {200, 0, 0});
  const int luma = 60;  // 0.299 of 200
  for (const bool png : {false, true}) {
    const auto encode = [png](const Picture& picture) {
      return png ? EncodePng(picture) : EncodeJpeg(picture);
    };
    const Picture coloured = Value(Decode(encode(grey), 3));
    const Picture greyed = Value(Decode(encode(red), 1));

    EXPECT_LE(Distance(coloured, Plain(9, 5, {80, 80, 80})), 1) << png;
    EXPECT_LE(Distance(greyed, Plain(9, 5, {luma})), 2) << png;
  }
}

TEST(OpenImage, ReadsInkAsLight) {
  // Adobe's way round: 255 is no ink.  libjpeg writes its marker.
  const auto read = [](const Picture& ink, int channels) {
    return Value(Decode(EncodeJpeg(ink), channels));
  };

  EXPECT_LE(Distance(read(Plain(16, 16, {255, 128, 0, 200}), 3),
                     Plain(16, 16, {200, 100, 0})),
            2);
  EXPECT_LE(Distance(read(Plain(16, 16, {255, 255, 255, 90}), 1),
                     Plain(16, 16, {90})),
            2);
}

TEST(OpenImage, ReadsEveryKindOfPngExactly) {
  const Picture slope = Slope(19, 13);
  for (const bool interlaced : {false, true}) {
    for (const bool sixteen : {false, true}) {
      EXPECT_EQ(Value(Decode(EncodePng(slope, interlaced, sixteen))).values,
                slope.values)
          << interlaced << sixteen;
    }
  }
  EXPECT_EQ(Value(Decode(EncodePng(Slope(19, 13, 4)))).values, slope.values)
      << "transparency is dropped";
}

TEST(OpenImage, DecodesAJpegSmallerWhereThatIsAllowed) {
  const Picture slope = Slope(161, 80);
  const Picture half = Value(Decode(EncodeJpeg(slope), 3, 2));
  const Picture eighth = Value(Decode(EncodeJpeg(slope), 3, 8));

  EXPECT_EQ(half.width, 81);
  EXPECT_EQ(half.height, 40);
  EXPECT_EQ(eighth.width, 21);
  EXPECT_EQ(eighth.height, 10);
  EXPECT_EQ(Value(Decode(EncodePng(slope), 3, 8)).width, 161)
      << "libpng cannot";
  EXPECT_LT(Distance(eighth, Slope(21, 10)), 20);
}

TEST(OpenImage, TakesAnOrientationThatMakesNoSenseForNone) {
  const std::string jpeg = EncodeJpeg(Slope(8, 8));
  for (const int bad : {0, 9, 255}) {
    EXPECT_EQ(
        OpenImage(Bytes(WithOrientation(jpeg, bad)), 3).value()->orientation(),
        1);
  }
  std::string lies = WithOrientation(jpeg, 6);
  EXPECT_EQ(OpenImage(Bytes(lies), 3).value()->orientation(), 6);
  for (size_t at = 12; at < 38; ++at) {
    std::string damaged = lies;
    damaged[at] = '\xff';
    const int turn = OpenImage(Bytes(damaged), 3).value()->orientation();
    EXPECT_TRUE(turn == 1 || turn == 6) << at;
  }
}

TEST(OpenImage, RefusesWhatIsNoPicture) {
  EXPECT_THAT(Refusal(""), HasSubstr("is empty"));
  EXPECT_THAT(Refusal("GIF89a"), HasSubstr("neither a JPEG nor a PNG"));
  EXPECT_THAT(Refusal("\xff\xd8"), HasSubstr("neither a JPEG nor a PNG"));
}

TEST(OpenImage, RefusesEveryTruncation) {
  const Picture slope = Slope(40, 24);
  for (const std::string& whole :
       {EncodeJpeg(slope), EncodeJpeg(slope, {.progressive = true}),
        EncodePng(slope), EncodePng(slope, /*interlaced=*/true)}) {
    ASSERT_TRUE(Decode(whole).ok());
    for (size_t length = 0; length < whole.size(); ++length) {
      SCOPED_TRACE(length);
      Refusal(whole.substr(0, length));
    }
  }
}

// A flipped bit may cost the picture, never the worker.
TEST(OpenImage, SurvivesEveryDamagedByte) {
  const Picture slope = Slope(24, 16);
  int refused = 0;
  for (const std::string& whole :
       {EncodeJpeg(slope), EncodeJpeg(slope, {.progressive = true}),
        EncodePng(slope)}) {
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int mask : {0x01, 0x80, 0xff}) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ mask);
        const auto picture = Decode(damaged);
        if (picture.ok()) continue;
        ++refused;
        EXPECT_EQ(picture.status().code(), absl::StatusCode::kInvalidArgument);
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(OpenImage, RefusesAJpegThatLiesAboutItsSize) {
  for (const bool progressive : {false, true}) {
    const std::string jpeg = EncodeJpeg(Slope(40, 24), {progressive});
    EXPECT_THAT(Refusal(WithSize(jpeg, 65500, 65500)),
                HasSubstr("65500 x 65500 pixels; at most"));
    EXPECT_THAT(Refusal(WithSize(jpeg, 8000, 8000)), HasSubstr("cannot hold"));
    // Small enough to be tried: the pixels are not there.
    EXPECT_THAT(Refusal(WithSize(jpeg, 400, 400)), HasSubstr("no good JPEG"));
    EXPECT_THAT(Refusal(WithSize(jpeg, 0, 24)), HasSubstr("no good JPEG"));
  }
}

TEST(OpenImage, RefusesAPngThatLiesAboutItsSize) {
  const std::tuple<int, int, const char*> kLies[] = {
      {900'000, 900'000, "pixels; at most"},
      {10'000, 10'000, "cannot hold"},
      {2'000'000, 1, "no good PNG"},
      {40, 25, "no good PNG"},
      {0, 24, "no good PNG"}};
  for (const auto& [width, height, why] : kLies) {
    EXPECT_THAT(Refusal(WithPngSize(EncodePng(Slope(40, 24)), width, height)),
                HasSubstr(why));
  }
}

// libpng would hold all of an interlaced picture.
TEST(OpenImage, RefusesAVastInterlacedPng) {
  std::string png =
      WithPngSize(EncodePng(Slope(40, 24), /*interlaced=*/true), 8000, 8000);
  png += std::string(10'000, '\0');  // so that the bytes could hold it

  EXPECT_THAT(Refusal(png), HasSubstr("interlaced"));
}

// libjpeg would hold the coefficients of all 120 million pixels.
TEST(OpenImage, RefusesAVastProgressiveJpeg) {
  std::string jpeg =
      WithSize(EncodeJpeg(Slope(40, 24), {.progressive = true}), 60000, 2000);
  jpeg += std::string(200'000, '\0');  // so that the bytes could hold it

  EXPECT_THAT(Refusal(jpeg), HasSubstr("no good JPEG"));
}

// A few bytes of scan, asked for again and again, would take for ever.
TEST(OpenImage, RefusesAJpegOfEndlessScans) {
  const std::string jpeg = EncodeJpeg(Slope(40, 24), {.progressive = true});
  // The first scan, which may come twice without harm, and what follows it.
  const size_t scan = jpeg.find("\xff\xda");
  size_t next = scan + 2;
  while (jpeg[next] != '\xff' || jpeg[next + 1] == '\0') ++next;
  std::string endless = jpeg.substr(0, next);
  for (int i = 0; i < 600; ++i) endless += jpeg.substr(scan, next - scan);
  endless += jpeg.substr(next);

  EXPECT_THAT(Refusal(endless), HasSubstr("more than 500 scans"));
}

}  // namespace
}  // namespace paceline
