// Pictures for tests, and their files.
#pragma once

#include <png.h>
#include <zlib.h>
// jpeglib.h needs <stdio.h> before it.
// clang-format off
#include <stdio.h>
#include <jpeglib.h>
// clang-format on

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace paceline {

// A picture in memory: [height, width, channels], 1 to 4 of them.
struct Picture {
  int width = 0;
  int height = 0;
  int channels = 3;
  std::vector<uint8_t> values;
};

inline Picture Plain(int width, int height, std::vector<uint8_t> colour) {
  Picture picture{width, height, static_cast<int>(colour.size()), {}};
  for (int i = 0; i < width * height; ++i) {
    picture.values.insert(picture.values.end(), colour.begin(), colour.end());
  }
  return picture;
}

// Smooth, so that a JPEG of it is near, and different everywhere.
inline Picture Slope(int width, int height, int channels = 3) {
  Picture picture{width, height, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const int values[] = {x * 200 / width, y * 200 / height,
                            (x + y) * 200 / (width + height), 255};
      picture.values.insert(picture.values.end(), values, values + channels);
    }
  }
  return picture;
}

struct JpegOptions {
  bool progressive = false;
  int quality = 95;
};

// A picture of 1 (grey), 3 or 4 (CMYK, upside down as Adobe's) channels.
inline std::string EncodeJpeg(const Picture& picture,
                              const JpegOptions& options = {}) {
  jpeg_compress_struct encoder = {};
  jpeg_error_mgr errors = {};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&encoder, &bytes, &size);
  encoder.image_width = picture.width;
  encoder.image_height = picture.height;
  encoder.input_components = picture.channels;
  encoder.in_color_space = picture.channels == 1   ? JCS_GRAYSCALE
                           : picture.channels == 3 ? JCS_RGB
                                                   : JCS_CMYK;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, options.quality, TRUE);
  if (options.progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  for (int y = 0; y < picture.height; ++y) {
    JSAMPROW row = const_cast<uint8_t*>(picture.values.data()) +
                   y * picture.width * picture.channels;
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string encoded(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&encoder);
  std::free(bytes);
  return encoded;
}

// A picture of 1 (grey), 2 (and alpha), 3 or 4 channels; sixteen: each value
// twice.
inline std::string EncodePng(const Picture& picture, bool interlaced = false,
                             bool sixteen = false) {
  std::string encoded;
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &encoded,
      [](png_structp to, png_bytep bytes, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(to))
            ->append(reinterpret_cast<char*>(bytes), count);
      },
      nullptr);
  constexpr int kTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                            PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
  png_set_IHDR(png, info, picture.width, picture.height, sixteen ? 16 : 8,
               kTypes[picture.channels - 1],
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  std::vector<uint8_t> values;
  for (const uint8_t value : picture.values) {
    values.insert(values.end(), sixteen ? 2 : 1, value);
  }
  std::vector<png_bytep> rows;
  const size_t row_bytes = values.size() / picture.height;
  for (int y = 0; y < picture.height; ++y) {
    rows.push_back(values.data() + y * row_bytes);
  }
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return encoded;
}

// The JPEG or PNG with Exif's note of how the camera was held.
inline std::string WithOrientation(std::string file, int orientation) {
  const bool jpeg = file[0] == '\xff';
  const char turn = static_cast<char>(orientation);
  // A JPEG's is in little endian here, a PNG's in big endian.
  const std::string tiff =
      jpeg
          ? std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18) +
                turn + std::string(7, '\0')
          : std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19) +
                turn + std::string(6, '\0');
  if (jpeg) {
    const std::string data = std::string("Exif\0\0", 6) + tiff;
    return file.insert(2, std::string("\xff\xe1\0", 3) +
                              static_cast<char>(data.size() + 2) + data);
  }
  std::string chunk = "eXIf" + tiff;
  const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(chunk.data()),
                          static_cast<uInt>(chunk.size()));
  for (int i = 3; i >= 0; --i) chunk += static_cast<char>(sum >> (8 * i));
  // Behind the signature and IHDR.
  return file.insert(
      33, std::string("\0\0\0", 3) + static_cast<char>(tiff.size()) + chunk);
}

}  // namespace paceline
