// PNG by libpng.
#pragma once

#include <memory>

#include "worker/data/image_reader.h"

namespace paceline {

// See OpenImage().
absl::StatusOr<std::unique_ptr<ImageReader>> OpenPng(
    absl::Span<const uint8_t> bytes, int channels);

}  // namespace paceline
