#include "core/base/dtype.h"

#include <array>

namespace paceline {
namespace {

struct DTypeTraits {
  absl::string_view name;
  int64_t bytes;
};

// By DType.
constexpr std::array<DTypeTraits, kDTypes> kTraits = {{{"unspecified", 0},
                                                       {"F32", 4},
                                                       {"BF16", 2},
                                                       {"F16", 2},
                                                       {"I64", 8},
                                                       {"I32", 4},
                                                       {"U8", 1}}};

const DTypeTraits& TraitsOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return kTraits[index < kTraits.size() ? index : 0];
}

}  // namespace

int64_t ElementBytes(DType dtype) { return TraitsOf(dtype).bytes; }

absl::string_view DTypeName(DType dtype) { return TraitsOf(dtype).name; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (size_t value = 1; value < kTraits.size(); ++value) {
    if (kTraits[value].name == name) return static_cast<DType>(value);
  }
  return std::nullopt;
}

}  // namespace paceline
