#include "worker/data/jpeg_reader.h"

// Each of these three needs the one before.
// clang-format off
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <setjmp.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

// A block of 64 pixels takes a bit or more in every scan that encoders write,
// so no byte holds more than 512; twice that is the bound.
constexpr int64_t kMostPixelsAByte = 1024;
// What libjpeg may hold at a time: a progressive picture is in memory whole,
// at 3 to 6 bytes a pixel.
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

// libjpeg reports errors by a call that must not return: it jumps back to the
// last Try().  Between the two are only frames of libjpeg and of functions
// below that own nothing.
struct Escape {
  jpeg_error_mgr manager;  // first: libjpeg hands out its address
  jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

Escape* EscapeOf(j_common_ptr codec) {
  return reinterpret_cast<Escape*>(codec->err);
}

[[noreturn]] void OnError(j_common_ptr codec) {
  codec->err->format_message(codec, EscapeOf(codec)->message);
  longjmp(EscapeOf(codec)->back, 1);
}

void OnMessage(j_common_ptr codec, int level) {
  if (level < 0 && IsDamage(codec->err->msg_code)) OnError(codec);
}

void OnOutput(j_common_ptr) {}

void OnProgress(j_common_ptr codec) {
  const auto* const decoder = reinterpret_cast<j_decompress_ptr>(codec);
  if (decoder->input_scan_number <= kMostScans) return;
  absl::SNPrintF(EscapeOf(codec)->message, JMSG_LENGTH_MAX,
                 "more than %d scans", kMostScans);
  longjmp(EscapeOf(codec)->back, 1);
}

class JpegReader final : public ImageReader {
 public:
  JpegReader(absl::Span<const uint8_t> bytes, int channels);
  ~JpegReader() override { jpeg_destroy_decompress(&decoder_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  absl::Status ReadHeader();
  ImageSize size() const override {
    return {decoder_.image_width, decoder_.image_height};
  }
  absl::StatusOr<ImageSize> Start(int most_shrink) override;
  absl::Status ReadRow(absl::Span<uint8_t> row) override;
  absl::Status Finish() override;

 private:
  absl::Status Try(absl::FunctionRef<void()> body);
  void FromCmyk(absl::Span<uint8_t> row) const;

  const absl::Span<const uint8_t> bytes_;
  const int channels_;
  Escape escape_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct decoder_ = {};
  std::vector<uint8_t> cmyk_;  // a row; empty for other colours
};

JpegReader::JpegReader(absl::Span<const uint8_t> bytes, int channels)
    : bytes_(bytes), channels_(channels) {
  decoder_.err = jpeg_std_error(&escape_.manager);
  escape_.manager.error_exit = OnError;
  escape_.manager.emit_message = OnMessage;
  escape_.manager.output_message = OnOutput;
  progress_.progress_monitor = OnProgress;
}

absl::Status JpegReader::Try(absl::FunctionRef<void()> body) {
  if (setjmp(escape_.back) == 0) {
    body();
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("is no good JPEG: ", escape_.message));
}

absl::Status JpegReader::ReadHeader() {
  PACELINE_RETURN_IF_ERROR(Try([this] {
    jpeg_create_decompress(&decoder_);
    decoder_.progress = &progress_;
    decoder_.mem->max_memory_to_use = kMostBytesHeld;
    jpeg_mem_src(&decoder_, bytes_.data(), bytes_.size());
    jpeg_read_header(&decoder_, TRUE);
  }));
  return CheckImageSize(size(), bytes_.size(), kMostPixelsAByte);
}

absl::StatusOr<ImageSize> JpegReader::Start(int most_shrink) {
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

absl::Status JpegReader::ReadRow(absl::Span<uint8_t> row) {
  JSAMPROW into = cmyk_.empty() ? row.data() : cmyk_.data();
  PACELINE_RETURN_IF_ERROR(
      Try([&] { jpeg_read_scanlines(&decoder_, &into, 1); }));
  if (!cmyk_.empty()) FromCmyk(row);
  return absl::OkStatus();
}

// Adobe's programs write ink upside down, and say that they did the writing.
void JpegReader::FromCmyk(absl::Span<uint8_t> row) const {
  const int flip = decoder_.saw_Adobe_marker ? 0 : 255;
  const uint8_t* ink = cmyk_.data();
  for (uint8_t* pixel = row.data(); pixel < row.data() + row.size();
       pixel += channels_, ink += 4) {
    const int light = ink[3] ^ flip;
    int rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = ((ink[c] ^ flip) * light + 127) / 255;
    if (channels_ == 3) {
      std::copy(rgb, rgb + 3, pixel);
    } else {
      // The luma of JFIF (ITU-R BT.601), in thousandths.
      *pixel = (299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000;
    }
  }
}

absl::Status JpegReader::Finish() {
  return Try([this] { jpeg_finish_decompress(&decoder_); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageReader>> OpenJpeg(
    absl::Span<const uint8_t> bytes, int channels) {
  auto reader = std::make_unique<JpegReader>(bytes, channels);
  PACELINE_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

}  // namespace paceline
