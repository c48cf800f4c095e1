// A picture out of a file's bytes, row by row, without ever holding all of it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paceline {

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// A header may promise anything.  Above this a picture is refused; phones of
// 2024 make 108 million.
constexpr int64_t kMostPixels = int64_t{1} << 27;

// Thread-compatible.  The bytes outlive it.
class ImageReader {
 public:
  virtual ~ImageReader() = default;

  // As the header says.
  virtual ImageSize size() const = 0;

  // How the picture is to be seen, as Exif numbers it: 1 (as it is) to 8.
  virtual int orientation() const = 0;

  // Begins to decode, once.  The rows may come smaller, by at most
  // `most_shrink` (1, 2, 4 or 8) each way, where that saves work.  Returns
  // their size.
  virtual absl::StatusOr<ImageSize> Start(int most_shrink) = 0;

  // The next row, from the top: `row` is [width, channels].
  // Errors: InvalidArgument  damaged, cut short
  virtual absl::Status ReadRow(absl::Span<uint8_t> row) = 0;

  // After the last row: whether what follows it is as it should be.
  virtual absl::Status Finish() = 0;
};

// Opens a JPEG (libjpeg-turbo) or a PNG (libpng), told apart by its first
// bytes.  Transparency is dropped, 16 bits become 8.
//   channels  of the rows: 1 (grey) or 3 (red, green, blue)
//
// Errors:
//   InvalidArgument  neither; a damaged header; more pixels than kMostPixels,
//                    or than so few bytes can hold
absl::StatusOr<std::unique_ptr<ImageReader>> OpenImage(
    absl::Span<const uint8_t> bytes, int channels);

}  // namespace paceline
