// Element types of tensors that cross the wire or lie in a weights file.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace paceline {

// Values are those of paceline.v1.DType.
enum class DType : uint8_t {
  kUnspecified = 0,
  kF32 = 1,
  kBF16 = 2,
  kF16 = 3,
  kI64 = 4,
  kI32 = 5,
  kU8 = 6,
};

constexpr int kDTypes = 7;  // a wire value is valid in [1, kDTypes)

// Bytes of one element; 0 for kUnspecified.
int64_t ElementBytes(DType dtype);
// "F32": the name safetensors uses.
absl::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);

}  // namespace paceline
