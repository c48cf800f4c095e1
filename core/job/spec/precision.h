// The precision in which the products of a job are computed.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace paceline {

// bf16: matrix products and convolutions take and give bfloat16.  Weights, sums
// of gradients, the optimizer, norms, softmax, losses and what crosses a
// layer's boundary are float32 in both.
enum class Precision : uint8_t { kF32 = 0, kBf16 = 1 };

// As job files write it: "fp32", "bf16".  Nothing for other words.
inline std::optional<Precision> FindPrecision(absl::string_view name) {
  if (name == "fp32") return Precision::kF32;
  if (name == "bf16") return Precision::kBf16;
  return std::nullopt;
}

// As profiles write it: ProfileKey::dtype.  A word that is none counts as fp32:
// CheckJobSpec has refused it.
inline const char* ProfileDType(absl::string_view precision) {
  return FindPrecision(precision) == Precision::kBf16 ? "bf16" : "f32";
}

}  // namespace paceline
