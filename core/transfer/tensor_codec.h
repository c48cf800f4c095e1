// How float32 tensors may be written on the wire: as they are, or smaller.
// Pure, little endian, and the same bytes on every CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"

namespace paceline {

// Values are those of paceline.v1.Codec.
//   raw   the elements as they lie in memory, of any dtype; called fp32
//   bf16  the upper half of a float32, rounded to nearest even
//   fp16  IEEE 754 binary16, rounded to nearest even; beyond 65504 infinity
//   int8  a scale each row, then the elements: x is about scale q with q a
//   whole
//         number from -127 to 127 and scale = max |x| / 127 of the row
// A row is the shortest run of trailing dimensions, the first one never among
// them, with at least 64 elements (all of them where there are fewer): a scale
// of its own for every few elements would cost more than it saves.  NaN and
// infinity stay what they are in bf16 and fp16.  In int8 one of them makes its
// whole row NaN, so that a check for finite numbers still finds it.
enum class Codec : uint8_t { kRaw = 1, kBf16 = 2, kF16 = 3, kInt8 = 4 };

// "fp32", "bf16", "fp16", "int8"; job files name them so.
absl::string_view CodecName(Codec codec);
std::optional<Codec> FindCodec(absl::string_view name);
std::vector<std::string> CodecNames();

// Bytes on the wire; -1 when they overflow int64 or a dimension is negative.
// What is not float32 can be raw only: -1 too.
int64_t EncodedBytes(Codec codec, DType dtype, const Shape& shape);

// Into a uint8 tensor of EncodedBytes(); raw: shares the tensor's memory.
// tensor: float32, unless raw.  O(elements).
Tensor Encode(Codec codec, const Tensor& tensor);

// bytes: EncodedBytes() of a float32 `into.shape`.  codec: not raw.
void Decode(Codec codec, absl::Span<const uint8_t> bytes, Tensor& into);

// |a - b| / |a| in the Euclidean norm: what a codec has changed; 0 when both
// are zero, infinity when `a` is and `b` is not.  Same sizes.
double RelativeError(absl::Span<const float> a, absl::Span<const float> b);

}  // namespace paceline
