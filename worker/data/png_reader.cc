#include "worker/data/png_reader.h"

#include <png.h>
#include <setjmp.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

// Deflate packs at most 1032 bytes into one (RFC 1951: 258 for two bits); a
// pixel takes a bit or more.
constexpr int64_t kMostPixelsAByte = 8 * 1032;
// An interlaced picture is in memory whole, at `channels` bytes a pixel.
constexpr int64_t kMostInterlacedPixels = int64_t{1} << 25;
constexpr png_uint_32 kLongestSide = 1'000'000;
// Of one chunk, uncompressed: texts and colour profiles, which nobody reads.
constexpr png_alloc_size_t kMostChunkBytes = 1 << 20;

class PngReader final : public ImageReader {
 public:
  PngReader(absl::Span<const uint8_t> bytes, int channels)
      : rest_(bytes), bytes_(bytes.size()), channels_(channels) {}
  ~PngReader() override { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  absl::Status ReadHeader();
  ImageSize size() const override { return size_; }
  absl::StatusOr<ImageSize> Start(int most_shrink) override;
  absl::Status ReadRow(absl::Span<uint8_t> row) override;
  absl::Status Finish() override;

 private:
  [[noreturn]] static void OnError(png_structp png, png_const_charp message);
  static void OnWarning(png_structp, png_const_charp) {}
  static void OnRead(png_structp png, png_bytep into, size_t count);
  absl::Status Try(absl::FunctionRef<void()> body);
  void SetTransformations();

  absl::Span<const uint8_t> rest_;  // what libpng has not yet asked for
  const size_t bytes_;
  const int channels_;
  ImageSize size_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  jmp_buf back_ = {};
  char message_[128] = "";
  std::vector<uint8_t> interlaced_;  // the whole picture, where it must be
  int64_t next_row_ = 0;             // of interlaced_
};

// libpng's errors jump back to the last Try(); see jpeg_reader.cc.
void PngReader::OnError(png_structp png, png_const_charp message) {
  auto* const self = static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(self->message_, message, sizeof(self->message_) - 1);
  longjmp(self->back_, 1);
}

void PngReader::OnRead(png_structp png, png_bytep into, size_t count) {
  auto* const self = static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > self->rest_.size()) png_error(png, "cut short");
  std::copy_n(self->rest_.begin(), count, into);
  self->rest_.remove_prefix(count);
}

absl::Status PngReader::Try(absl::FunctionRef<void()> body) {
  if (setjmp(back_) == 0) {
    body();
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("is no good PNG: ", message_));
}

absl::Status PngReader::ReadHeader() {
  png_ =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
  if (png_ != nullptr) info_ = png_create_info_struct(png_);
  if (info_ == nullptr) {
    return absl::ResourceExhaustedError("no memory left to read a PNG");
  }
  PACELINE_RETURN_IF_ERROR(Try([this] {
    png_set_read_fn(png_, this, OnRead);
    png_set_user_limits(png_, kLongestSide, kLongestSide);
    png_set_chunk_malloc_max(png_, kMostChunkBytes);
    png_read_info(png_, info_);
  }));
  size_ = {png_get_image_width(png_, info_), png_get_image_height(png_, info_)};
  return CheckImageSize(size_, bytes_, kMostPixelsAByte);
}

void PngReader::SetTransformations() {
  const int type = png_get_color_type(png_, info_);
  png_set_expand(png_);  // palettes, and 1, 2 or 4 bits
  png_set_scale_16(png_);
  png_set_strip_alpha(png_);
  const bool colour = (type & PNG_COLOR_MASK_COLOR) != 0;
  if (colour && channels_ == 1) {
    // The luma of ITU-R BT.601, as libjpeg's.
    png_set_rgb_to_gray(png_, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
  } else if (!colour && channels_ == 3) {
    png_set_gray_to_rgb(png_);
  }
}

absl::StatusOr<ImageSize> PngReader::Start(int /*most_shrink*/) {
  const bool interlaced =
      png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
  const int64_t pixels = size_.width * size_.height;
  if (interlaced && pixels > kMostInterlacedPixels) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", size_.width, " x ", size_.height,
                     " interlaced pixels; at most ", kMostInterlacedPixels,
                     " are read, save it without interlacing"));
  }
  PACELINE_RETURN_IF_ERROR(Try([this] {
    SetTransformations();
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const size_t row_bytes = channels_ * size_.width;
    if (png_get_rowbytes(png_, info_) != row_bytes) {
      png_error(png_, "colours that cannot be converted");
    }
  }));
  if (!interlaced) return size_;
  interlaced_.resize(pixels * channels_);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < size_.height; ++y) {
    rows.push_back(interlaced_.data() + y * size_.width * channels_);
  }
  PACELINE_RETURN_IF_ERROR(Try([&] { png_read_image(png_, rows.data()); }));
  return size_;
}

absl::Status PngReader::ReadRow(absl::Span<uint8_t> row) {
  if (interlaced_.empty()) {
    return Try([&] { png_read_row(png_, row.data(), nullptr); });
  }
  std::copy_n(interlaced_.begin() + next_row_++ * row.size(), row.size(),
              row.begin());
  return absl::OkStatus();
}

absl::Status PngReader::Finish() {
  return Try([this] { png_read_end(png_, nullptr); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageReader>> OpenPng(
    absl::Span<const uint8_t> bytes, int channels) {
  auto reader = std::make_unique<PngReader>(bytes, channels);
  PACELINE_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

}  // namespace paceline
