#include "worker/round_shape.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/base/check.h"
#include "core/base/tensor.h"
#include "core/round/rule_blocks.h"

namespace paceline {
namespace {

// `values` as a tensor that owns nothing.
Tensor Borrow(float* values, size_t count) {
  Tensor tensor;
  tensor.dtype = DType::kF32;
  tensor.shape = {static_cast<int64_t>(count)};
  tensor.data = std::shared_ptr<uint8_t>(std::shared_ptr<void>(),
                                         reinterpret_cast<uint8_t*>(values));
  return tensor;
}

}  // namespace

size_t RoundShape::begin(int shard) const {
  PACELINE_CHECK(shard >= 0 && shard <= shards_, "a shard of another round");
  const size_t blocks = (values_ + kRuleBlock - 1) / kRuleBlock;
  const size_t before =
      blocks * static_cast<size_t>(shard) / static_cast<size_t>(shards_);
  return std::min(values_, before * kRuleBlock);
}

void DecodeValues(Codec codec, absl::Span<const uint8_t> bytes,
                  absl::Span<float> values) {
  if (values.empty()) return;
  if (codec == Codec::kRaw) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return;
  }
  Tensor into = Borrow(values.data(), values.size());
  Decode(codec, bytes, into);
}

void EncodeValues(Codec codec, absl::Span<const float> values,
                  absl::Span<uint8_t> bytes) {
  if (values.empty()) return;
  if (codec == Codec::kRaw) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return;
  }
  // Encode() only reads.
  const Tensor encoded =
      Encode(codec, Borrow(const_cast<float*>(values.data()), values.size()));
  std::memcpy(bytes.data(), encoded.data.get(), bytes.size());
}

}  // namespace paceline
