#include "core/transfer/tensor_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace paceline {
namespace {

constexpr int64_t kLeastRow = 64;
constexpr float kMostQuantum = 127;
constexpr uint32_t kAbsolute = 0x7fffffff;
constexpr uint32_t kInfinity = 0x7f800000;  // of a float32, as are those below
// A row of smaller numbers is written as zeros: their inverse is infinite.
constexpr float kLeastMaximum = 1e-35f;

// By Codec, from 1 on.
constexpr const char* kNames[] = {"unknown", "fp32", "bf16", "fp16", "int8"};

// Elements of a row; 0 when there are no elements at all.
int64_t RowElements(const Shape& shape) {
  int64_t row = 1;
  for (size_t i = shape.size(); i > 1 && row < kLeastRow; --i) {
    row *= shape[i - 1];
  }
  return row;
}

// The next three are written without branches on single elements, so that
// compilers make vectors of them.

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool is_nan = (bits & kAbsolute) > kInfinity;
  return static_cast<uint16_t>((is_nan ? bits | 0x400000 : rounded) >> 16);
}

uint16_t ToF16(float value) {
  constexpr uint32_t kLeastNormal = 0x38800000;  // 2^-14
  constexpr uint32_t kOverflow = 0x477ff000;     // rounds to 2^16
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & kAbsolute;
  // The unit of a subnormal is 2^-24, which is that of 0.5f: the sum rounds.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
      0x3f000000;
  const uint32_t normal =
      (magnitude + 0xc8000fff + ((magnitude >> 13) & 1)) >> 13;
  uint32_t half = magnitude < kLeastNormal ? subnormal : normal;
  half = magnitude >= kOverflow ? 0x7c00 : half;
  half = magnitude > kInfinity ? 0x7e00 : half;
  return static_cast<uint16_t>(sign | half);
}

float FromBf16(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

float FromF16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  uint32_t bits = magnitude < 0x400 ? subnormal : normal;
  bits = magnitude >= 0x7c00 ? normal + (112u << 23) : bits;
  return std::bit_cast<float>(sign | bits);
}

// memcpy: memory of the wire has no alignment.
template <uint16_t (*kTo)(float)>
void EncodeHalves(absl::Span<const float> values, uint8_t* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = kTo(values[i]);
    std::memcpy(out + 2 * i, &half, sizeof(half));
  }
}

template <float (*kFrom)(uint16_t)>
void DecodeHalves(const uint8_t* bytes, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, bytes + 2 * i, sizeof(half));
    values[i] = kFrom(half);
  }
}

float Quantize(const float* row, int64_t size, int8_t* out) {
  uint32_t most = 0;  // floats without their sign are ordered as their bits
  for (int64_t i = 0; i < size; ++i) {
    most = std::max(most, std::bit_cast<uint32_t>(row[i]) & kAbsolute);
  }
  const float maximum = std::bit_cast<float>(most);
  if (most >= kInfinity || maximum < kLeastMaximum) {
    std::memset(out, 0, size);
    // NaN times zero is NaN.
    return most >= kInfinity ? std::numeric_limits<float>::quiet_NaN() : 0;
  }
  const float inverse = kMostQuantum / maximum;
  for (int64_t i = 0; i < size; ++i) {
    // Adding 1.5 x 2^23 leaves the nearest whole number in the last bits.
    const float shifted = row[i] * inverse + 0x1.8p23f;
    out[i] = static_cast<int8_t>(std::bit_cast<int32_t>(shifted) - 0x4b400000);
  }
  return maximum / kMostQuantum;
}

void EncodeInt8(absl::Span<const float> values, int64_t row, uint8_t* out) {
  const int64_t size = static_cast<int64_t>(values.size());
  auto* const quanta = reinterpret_cast<int8_t*>(out + size / row * 4);
  for (int64_t begin = 0; begin < size; begin += row) {
    const float scale = Quantize(&values[begin], row, quanta + begin);
    std::memcpy(out + begin / row * 4, &scale, sizeof(scale));
  }
}

void DecodeInt8(const uint8_t* bytes, int64_t row, absl::Span<float> values) {
  const int64_t size = static_cast<int64_t>(values.size());
  const auto* const quanta =
      reinterpret_cast<const int8_t*>(bytes + size / row * 4);
  for (int64_t begin = 0; begin < size; begin += row) {
    float scale;
    std::memcpy(&scale, bytes + begin / row * 4, sizeof(scale));
    for (int64_t i = begin; i < begin + row; ++i) {
      values[i] = scale * static_cast<float>(quanta[i]);
    }
  }
}

}  // namespace

absl::string_view CodecName(Codec codec) {
  const auto index = static_cast<size_t>(codec);
  return kNames[index < std::size(kNames) ? index : 0];
}

std::optional<Codec> FindCodec(absl::string_view name) {
  for (size_t i = 1; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Codec>(i);
  }
  return std::nullopt;
}

std::vector<std::string> CodecNames() {
  return {std::begin(kNames) + 1, std::end(kNames)};
}

int64_t EncodedBytes(Codec codec, DType dtype, const Shape& shape) {
  if (codec == Codec::kRaw) return TensorBytes(dtype, shape);
  const int64_t raw = TensorBytes(DType::kF32, shape);
  if (dtype != DType::kF32 || raw < 0) return -1;
  const int64_t elements = raw / 4;
  if (codec != Codec::kInt8) return 2 * elements;
  return elements == 0 ? 0 : elements + elements / RowElements(shape) * 4;
}

Tensor Encode(Codec codec, const Tensor& tensor) {
  const int64_t bytes = EncodedBytes(codec, tensor.dtype, tensor.shape);
  if (codec == Codec::kRaw) return {DType::kU8, {bytes}, tensor.data};
  Tensor encoded = Tensor::Allocate(DType::kU8, {bytes});
  const absl::Span<const float> values = tensor.As<float>();
  uint8_t* const out = encoded.data.get();
  if (bytes == 0) return encoded;
  if (codec == Codec::kBf16) {
    EncodeHalves<ToBf16>(values, out);
  } else if (codec == Codec::kF16) {
    EncodeHalves<ToF16>(values, out);
  } else {
    EncodeInt8(values, RowElements(tensor.shape), out);
  }
  return encoded;
}

void Decode(Codec codec, absl::Span<const uint8_t> bytes, Tensor& into) {
  const absl::Span<float> values = into.As<float>();
  if (values.empty()) return;
  if (codec == Codec::kBf16) {
    DecodeHalves<FromBf16>(bytes.data(), values);
  } else if (codec == Codec::kF16) {
    DecodeHalves<FromF16>(bytes.data(), values);
  } else {
    DecodeInt8(bytes.data(), RowElements(into.shape), values);
  }
}

double RelativeError(absl::Span<const float> a, absl::Span<const float> b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double apart = double{a[i]} - double{b[i]};
    difference += apart * apart;
    size += double{a[i]} * double{a[i]};
  }
  if (difference == 0) return 0;
  return std::sqrt(difference / size);
}

}  // namespace paceline
