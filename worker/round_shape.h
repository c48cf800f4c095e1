// How a gradient is cut into shards, and written on the wire, in rounds.  Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "core/transfer/tensor_codec.h"

namespace paceline {

// Equal on all members, whatever the view: a function of what the job says.
// A value type.
class RoundShape {
 public:
  // values: float32 of the gradient; shards >= 1; codec: kRaw (called fp32) or
  // kBf16.
  RoundShape(size_t values, int shards, Codec codec)
      : values_(values), shards_(shards), codec_(codec) {}

  size_t values() const { return values_; }
  int shards() const { return shards_; }
  Codec codec() const { return codec_; }

  // Shard `shard` is values [begin(shard), begin(shard + 1)); whole blocks of
  // kRuleBlock values but the last one.  Empty where there are fewer blocks
  // than shards.
  size_t begin(int shard) const;
  size_t values(int shard) const { return begin(shard + 1) - begin(shard); }

  size_t value_bytes() const { return codec_ == Codec::kBf16 ? 2 : 4; }
  size_t bytes(int shard) const { return values(shard) * value_bytes(); }

 private:
  size_t values_;
  int shards_;
  Codec codec_;
};

// Of a shard's bytes those of [begin, begin + values.size()) as float32, and
// back (rounded to nearest even); bytes is values.size() * value_bytes().
void DecodeValues(Codec codec, absl::Span<const uint8_t> bytes,
                  absl::Span<float> values);
void EncodeValues(Codec codec, absl::Span<const float> values,
                  absl::Span<uint8_t> bytes);

}  // namespace paceline
