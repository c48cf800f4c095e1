#include "worker/data/image_reader.h"

// Each of these three needs the one before.
// clang-format off
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <png.h>
#include <setjmp.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "core/base/errors.h"

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

// OK, or why a header is not believed: more than kMostPixels, or more pixels
// than `bytes` could hold when `most_pixels_a_byte` fit into each.
absl::Status CheckImageSize(ImageSize size, size_t bytes,
                            int64_t most_pixels_a_byte) {
  const int64_t pixels = size.width * size.height;
  if (pixels > kMostPixels) {
    return InvalidArgument("says it has ", size.width, " x ", size.height,
                           " pixels; at most ", kMostPixels, " are read");
  }
  if (pixels / most_pixels_a_byte > static_cast<int64_t>(bytes)) {
    return InvalidArgument("says it has ", size.width, " x ", size.height,
                           " pixels, which its ", bytes, " bytes cannot hold");
  }
  return absl::OkStatus();
}

// Opens either.
template <typename Reader>
absl::StatusOr<std::unique_ptr<ImageReader>> OpenBy(
    absl::Span<const uint8_t> bytes, int channels) {
  auto reader = std::make_unique<Reader>(bytes, channels);
  PACELINE_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

constexpr uint8_t kExif[] = {'E', 'x', 'i', 'f', 0, 0};
constexpr uint32_t kOrientation = 0x0112;  // Exif 2.32, 4.6.4
constexpr uint32_t kMostEntries = 512;

// Says what Exif's data has for the orientation: a TIFF header, and where it
// points to a directory of entries, 12 bytes each.  1: nothing that makes
// sense.
int OrientationIn(absl::Span<const uint8_t> tiff) {
  const bool little = !tiff.empty() && tiff[0] == 'I';
  const auto number = [&](size_t at, size_t bytes) -> uint32_t {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes && at + bytes <= tiff.size(); ++i) {
      value = value << 8 | tiff[at + (little ? bytes - 1 - i : i)];
    }
    return value;
  };
  const size_t directory = number(4, 4);
  const uint32_t entries = std::min(number(directory, 2), kMostEntries);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (number(entry, 2) != kOrientation) continue;
    const uint32_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

// The same of a JPEG, out of its segments before the picture.
int OrientationOfJpeg(absl::Span<const uint8_t> bytes) {
  constexpr size_t kHead = 4;  // a segment's marker and length
  size_t at = 2;
  while (at + kHead <= bytes.size() && bytes[at] == 0xff &&
         bytes[at + 1] >= 0xe0) {
    const size_t length = bytes[at + 2] << 8 | bytes[at + 3];
    const absl::Span<const uint8_t> data = bytes.subspan(at + kHead, length);
    if (bytes[at + 1] == 0xe1 && BeginsWith(data, kExif)) {
      return OrientationIn(data.subspan(sizeof(kExif)));
    }
    at += 2 + length;
  }
  return 1;
}

// A block of 64 pixels takes a bit or more in every scan that encoders write,
// so no byte holds more than 512; twice that is the bound.
constexpr int64_t kMostJpegPixelsAByte = 1024;
// The most that libjpeg may hold at a time: a progressive picture is in memory
// whole, at 3 to 6 bytes a pixel.
constexpr long kMostBytesHeld = 256L << 20;  // NOLINT: libjpeg's type
// A file of a few kilobytes may ask to go over a large picture ever again;
// encoders write ten scans or so.
constexpr int kMostScans = 500;

// libjpeg calls these warnings and goes on with grey.  Other warnings leave
// the picture whole.
bool IsDamage(int message) {
  return message == JWRN_ARITH_BAD_CODE || message == JWRN_HIT_MARKER ||
         message == JWRN_HUFF_BAD_CODE || message == JWRN_JPEG_EOF ||
         message == JWRN_MUST_RESYNC;
}

// libjpeg and libpng report errors by a call that must not return: it jumps
// back to the last Try().  Between the two are only frames of the library and
// of functions below that own nothing.
struct Escape {
  absl::Status Try(const char* format, absl::FunctionRef<void()> body) {
    if (setjmp(back) == 0) {
      body();
      return absl::OkStatus();
    }
    return InvalidArgument("is no good ", format, ": ", message);
  }

  jmp_buf back = {};
  char message[JMSG_LENGTH_MAX] = "";
};

struct JpegEscape {
  jpeg_error_mgr manager;  // first: libjpeg hands out its address
  Escape escape;
};

Escape& EscapeOf(j_common_ptr codec) {
  return reinterpret_cast<JpegEscape*>(codec->err)->escape;
}

[[noreturn]] void OnError(j_common_ptr codec) {
  codec->err->format_message(codec, EscapeOf(codec).message);
  longjmp(EscapeOf(codec).back, 1);
}

void OnMessage(j_common_ptr codec, int level) {
  if (level < 0 && IsDamage(codec->err->msg_code)) OnError(codec);
}

void OnOutput(j_common_ptr) {}

void OnProgress(j_common_ptr codec) {
  const auto* const decoder = reinterpret_cast<j_decompress_ptr>(codec);
  if (decoder->input_scan_number <= kMostScans) return;
  absl::SNPrintF(EscapeOf(codec).message, JMSG_LENGTH_MAX, "more than %d scans",
                 kMostScans);
  longjmp(EscapeOf(codec).back, 1);
}

class JpegReader final : public ImageReader {
 public:
  JpegReader(absl::Span<const uint8_t> bytes, int channels)
      : bytes_(bytes), channels_(channels) {
    decoder_.err = jpeg_std_error(&escape_.manager);
    escape_.manager.error_exit = OnError;
    escape_.manager.emit_message = OnMessage;
    escape_.manager.output_message = OnOutput;
    progress_.progress_monitor = OnProgress;
  }
  ~JpegReader() override { jpeg_destroy_decompress(&decoder_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  absl::Status ReadHeader() {
    PACELINE_RETURN_IF_ERROR(Try([this] {
      jpeg_create_decompress(&decoder_);
      decoder_.progress = &progress_;
      decoder_.mem->max_memory_to_use = kMostBytesHeld;
      jpeg_mem_src(&decoder_, bytes_.data(), bytes_.size());
      jpeg_read_header(&decoder_, TRUE);
    }));
    return CheckImageSize(size(), bytes_.size(), kMostJpegPixelsAByte);
  }

  ImageSize size() const override {
    return {decoder_.image_width, decoder_.image_height};
  }
  int orientation() const override { return OrientationOfJpeg(bytes_); }

  absl::StatusOr<ImageSize> Start(int most_shrink) override {
    const bool cmyk = decoder_.jpeg_color_space == JCS_CMYK ||
                      decoder_.jpeg_color_space == JCS_YCCK;
    PACELINE_RETURN_IF_ERROR(Try([&] {
      decoder_.out_color_space = cmyk             ? JCS_CMYK
                                 : channels_ == 1 ? JCS_GRAYSCALE
                                                  : JCS_RGB;
      decoder_.scale_num = 8 / most_shrink;
      decoder_.scale_denom = 8;
      // The one method whose SIMD gives the same bytes as its C.
      decoder_.dct_method = JDCT_ISLOW;
      jpeg_start_decompress(&decoder_);
    }));
    if (cmyk) cmyk_.resize(size_t{4} * decoder_.output_width);
    return ImageSize{decoder_.output_width, decoder_.output_height};
  }

  absl::Status ReadRow(absl::Span<uint8_t> row) override {
    JSAMPROW into = cmyk_.empty() ? row.data() : cmyk_.data();
    PACELINE_RETURN_IF_ERROR(
        Try([&] { jpeg_read_scanlines(&decoder_, &into, 1); }));
    if (!cmyk_.empty()) FromCmyk(row);
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    return Try([this] { jpeg_finish_decompress(&decoder_); });
  }

 private:
  absl::Status Try(absl::FunctionRef<void()> body) {
    return escape_.escape.Try("JPEG", body);
  }

  // Adobe's programs write ink upside down, and say that they did the writing.
  void FromCmyk(absl::Span<uint8_t> row) const {
    const int flip = decoder_.saw_Adobe_marker ? 0 : 255;
    const uint8_t* ink = cmyk_.data();
    for (uint8_t* pixel = row.data(); pixel < row.data() + row.size();
         pixel += channels_, ink += 4) {
      const int light = ink[3] ^ flip;
      int rgb[3];
      for (int c = 0; c < 3; ++c) {
        rgb[c] = ((ink[c] ^ flip) * light + 127) / 255;
      }
      if (channels_ == 3) {
        std::copy(rgb, rgb + 3, pixel);
      } else {
        // The luma of JFIF (ITU-R BT.601), in thousandths.
        *pixel = (299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000;
      }
    }
  }

  const absl::Span<const uint8_t> bytes_;
  const int channels_;
  JpegEscape escape_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct decoder_ = {};
  std::vector<uint8_t> cmyk_;  // a row; empty for other colours
};

// Deflate packs at most 1032 bytes into one (RFC 1951: 258 for two bits); a
// pixel takes a bit or more.
constexpr int64_t kMostPngPixelsAByte = 8 * 1032;
// An interlaced picture is in memory whole, at `channels` bytes a pixel.
constexpr int64_t kMostInterlacedPixels = int64_t{1} << 25;
constexpr png_uint_32 kLongestSide = 1'000'000;
// The most bytes of one chunk, uncompressed.  Large chunks are texts and colour
// profiles, which are not used.
constexpr png_alloc_size_t kMostChunkBytes = 1 << 20;

class PngReader final : public ImageReader {
 public:
  PngReader(absl::Span<const uint8_t> bytes, int channels)
      : rest_(bytes), bytes_(bytes.size()), channels_(channels) {}
  ~PngReader() override { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  absl::Status ReadHeader() {
    png_ =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      return ResourceExhausted("no memory left to read a PNG");
    }
    PACELINE_RETURN_IF_ERROR(Try([this] {
      png_set_read_fn(png_, this, OnRead);
      png_set_user_limits(png_, kLongestSide, kLongestSide);
      png_set_chunk_malloc_max(png_, kMostChunkBytes);
      png_read_info(png_, info_);
#ifdef PNG_eXIf_SUPPORTED
      png_uint_32 exif_bytes = 0;
      png_bytep exif = nullptr;
      if (png_get_eXIf_1(png_, info_, &exif_bytes, &exif) != 0) {
        orientation_ = OrientationIn({exif, exif_bytes});
      }
#endif
    }));
    size_ = {png_get_image_width(png_, info_),
             png_get_image_height(png_, info_)};
    return CheckImageSize(size_, bytes_, kMostPngPixelsAByte);
  }

  ImageSize size() const override { return size_; }
  int orientation() const override { return orientation_; }

  absl::StatusOr<ImageSize> Start(int /*most_shrink*/) override {
    const bool interlaced =
        png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    const int64_t pixels = size_.width * size_.height;
    if (interlaced && pixels > kMostInterlacedPixels) {
      return InvalidArgument("has ", size_.width, " x ", size_.height,
                             " interlaced pixels; at most ",
                             kMostInterlacedPixels,
                             " are read, save it without interlacing");
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

  absl::Status ReadRow(absl::Span<uint8_t> row) override {
    if (interlaced_.empty()) {
      return Try([&] { png_read_row(png_, row.data(), nullptr); });
    }
    std::copy_n(interlaced_.begin() + next_row_++ * row.size(), row.size(),
                row.begin());
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    return Try([this] { png_read_end(png_, nullptr); });
  }

 private:
  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    Escape& escape = static_cast<PngReader*>(png_get_error_ptr(png))->escape_;
    std::strncpy(escape.message, message, sizeof(escape.message) - 1);
    longjmp(escape.back, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
  static void OnRead(png_structp png, png_bytep into, size_t count) {
    auto* const self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->rest_.size()) png_error(png, "cut short");
    std::copy_n(self->rest_.begin(), count, into);
    self->rest_.remove_prefix(count);
  }

  absl::Status Try(absl::FunctionRef<void()> body) {
    return escape_.Try("PNG", body);
  }

  void SetTransformations() {
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

  absl::Span<const uint8_t> rest_;  // what libpng has not yet asked for
  const size_t bytes_;
  const int channels_;
  ImageSize size_;
  int orientation_ = 1;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  Escape escape_;
  std::vector<uint8_t> interlaced_;  // the whole picture, where it must be
  int64_t next_row_ = 0;             // of interlaced_
};

}  // namespace

absl::StatusOr<std::unique_ptr<ImageReader>> OpenImage(
    absl::Span<const uint8_t> bytes, int channels) {
  if (BeginsWith(bytes, kJpegMagic)) return OpenBy<JpegReader>(bytes, channels);
  if (BeginsWith(bytes, kPngMagic)) return OpenBy<PngReader>(bytes, channels);
  return InvalidArgument(bytes.empty() ? "is empty"
                                       : "is neither a JPEG nor a PNG");
}

}  // namespace paceline
