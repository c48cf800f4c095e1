#include "worker/rounds/parts/round_part.h"

#include <algorithm>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/tensor.h"
#include "core/round/rules/rule_blocks.h"
#include "core/transfer/checksum.h"

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

// As few chunks a shard as their greatest size allows.
RoundShape::RoundShape(size_t values, int shards, Codec codec)
    : values_(values), shards_(shards), codec_(codec) {
  const size_t most = shards * (kRoundChunkBytes / value_bytes());
  const size_t chunks =
      shards * std::max<size_t>(1, (values + most - 1) / most);
  const size_t blocks = (values + kRuleBlock - 1) / kRuleBlock;
  chunk_values_ =
      kRuleBlock * std::max<size_t>(1, (blocks + chunks - 1) / chunks);
}

int RoundShape::chunks() const {
  return static_cast<int>((values_ + chunk_values_ - 1) / chunk_values_);
}

size_t RoundShape::values(int shard) const {
  PACELINE_CHECK(shard >= 0 && shard < shards_, "a shard of another round");
  if (shard >= chunks()) return 0;
  const int last = chunks() - 1;
  const size_t whole = ((last - shard) / shards_ + 1) * chunk_values_;
  return shard_of(last) == shard ? whole - (begin(last + 1) - values_) : whole;
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

RoundPart::RoundPart(const PartOptions& options, const RoundShape& shape,
                     BlockPool& pool)
    : options_(options),
      shape_(shape),
      released_(std::make_shared<absl::Notification>()) {
  PACELINE_CHECK(options.gradient.size() == shape.values(),
                 "a gradient of another model");
  // The last payload over the gradient's memory drops this.
  const std::shared_ptr<void> lease(
      options_.gradient.data(),
      [released = released_](void*) { released->Notify(); });
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    if (shape_.values(shard) == 0) {
      payloads_.push_back(nullptr);
    } else if (shape_.codec() == Codec::kRaw) {
      const size_t chunk_bytes = shape_.chunk_values() * sizeof(float);
      float* const first = options_.gradient.data() + shape_.begin(shard);
      payloads_.push_back(RoundPayload::Over(
          reinterpret_cast<uint8_t*>(first), shape_.bytes(shard), lease,
          {chunk_bytes, (shape_.shards() - 1) * chunk_bytes}));
    } else {
      payloads_.push_back(shape_.Make(shard, pool));
    }
  }
  marked_from_ = shape_.chunks();
}

void RoundPart::MarkReady(size_t begin) {
  while (marked_from_ > 0 && shape_.begin(marked_from_ - 1) >= begin) {
    MarkChunk(--marked_from_);
  }
}

void RoundPart::MarkChunk(int chunk) {
  RoundPayload& payload = *payloads_[shape_.shard_of(chunk)];
  const int index = shape_.index_of(chunk);
  const absl::Span<uint8_t> bytes = payload.chunk(index);
  const absl::Span<const float> values = options_.gradient.subspan(
      shape_.begin(chunk), bytes.size() / shape_.value_bytes());
  if (shape_.codec() != Codec::kRaw) {
    EncodeValues(shape_.codec(), values, bytes);
  }
  finite_ = finite_ && FindNonFinite(values) == values.size();
  // The transport's checksum is that of these bytes; only the offer's differs.
  if (options_.corrupts && chunk == 0) bytes[0] ^= 1;
  payload.MarkReady(index, HashBytes(bytes));
}

std::vector<PartOffer> RoundPart::Offers(int64_t samples) const {
  const bool usable = samples > 0 && (finite_ || options_.lies);
  std::vector<PartOffer> offers;
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    PartOffer offer{options_.step,         shard, 0, 0, options_.division,
                    samples > 0 && !usable};
    const RoundPayload* const payload = payloads_[shard].get();
    if (usable) {
      offer.samples = samples;
      offer.hash = payload == nullptr ? 1 : payload->hash();
      // Stands for the hash of the bytes before they were spoilt.
      if (options_.corrupts && shard == 0) offer.hash ^= 1;
    }
    offers.push_back(offer);
  }
  return offers;
}

void RoundPart::Release() { payloads_.clear(); }

void MarkAllReady(RoundPayload& payload) {
  for (int chunk = 0; chunk < payload.chunks(); ++chunk) {
    payload.MarkReady(chunk, HashBytes(payload.chunk(chunk)));
  }
}

}  // namespace paceline
