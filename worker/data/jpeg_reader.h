// JPEG by libjpeg-turbo.
#pragma once

#include <memory>

#include "worker/data/image_reader.h"

namespace paceline {

// See OpenImage().
absl::StatusOr<std::unique_ptr<ImageReader>> OpenJpeg(
    absl::Span<const uint8_t> bytes, int channels);

}  // namespace paceline
