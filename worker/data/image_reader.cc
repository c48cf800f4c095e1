#include "worker/data/image_reader.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "worker/data/jpeg_reader.h"
#include "worker/data/png_reader.h"

namespace paceline {
namespace {

constexpr uint8_t kJpegMagic[] = {0xff, 0xd8, 0xff};
constexpr uint8_t kPngMagic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

template <size_t kBytes>
bool BeginsWith(absl::Span<const uint8_t> bytes,
                const uint8_t (&magic)[kBytes]) {
  return bytes.size() >= kBytes &&
         std::equal(std::begin(magic), std::end(magic), bytes.begin());
}

}  // namespace

absl::Status CheckImageSize(ImageSize size, size_t bytes,
                            int64_t most_pixels_a_byte) {
  const int64_t pixels = size.width * size.height;
  if (pixels > kMostPixels) {
    return absl::InvalidArgumentError(
        absl::StrCat("says it has ", size.width, " x ", size.height,
                     " pixels; at most ", kMostPixels, " are read"));
  }
  if (pixels / most_pixels_a_byte > static_cast<int64_t>(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("says it has ", size.width, " x ", size.height,
                     " pixels, which its ", bytes, " bytes cannot hold"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ImageReader>> OpenImage(
    absl::Span<const uint8_t> bytes, int channels) {
  if (BeginsWith(bytes, kJpegMagic)) return OpenJpeg(bytes, channels);
  if (BeginsWith(bytes, kPngMagic)) return OpenPng(bytes, channels);
  return absl::InvalidArgumentError(
      bytes.empty() ? "is empty" : "is neither a JPEG nor a PNG");
}

}  // namespace paceline
