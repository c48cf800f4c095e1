#include "core/base/dtype.h"

namespace paceline {

int64_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kUnspecified:
      return 0;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kUnspecified:
      return "unspecified";
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kU8:
      return "U8";
  }
  return "unspecified";
}

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (int value = 1; value < kDTypes; ++value) {
    const auto dtype = static_cast<DType>(value);
    if (DTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace paceline
