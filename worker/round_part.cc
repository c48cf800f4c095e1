#include "worker/round_part.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/round/rule_blocks.h"
#include "core/transfer/checksum.h"

namespace paceline {

RoundPart::RoundPart(const PartOptions& options, const RoundShape& shape,
                     BlockPool& pool)
    : options_(options),
      shape_(shape),
      released_(std::make_shared<absl::Notification>()) {
  PACELINE_CHECK(options.gradient.size() == shape.values(),
                 "a gradient of another model");
  // Dropped with the last payload that is made of it.
  const std::shared_ptr<void> lease(
      options_.gradient.data(),
      [released = released_](void*) { released->Notify(); });
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    if (shape_.values(shard) == 0) {
      payloads_.push_back(nullptr);
    } else if (shape_.codec() == Codec::kRaw) {
      float* const first = options_.gradient.data() + shape_.begin(shard);
      payloads_.push_back(
          RoundPayload::Over(absl::MakeSpan(reinterpret_cast<uint8_t*>(first),
                                            shape_.bytes(shard)),
                             lease));
    } else {
      payloads_.push_back(pool.Make(shape_.bytes(shard)));
    }
    marked_from_.push_back(
        payloads_.back() == nullptr ? 0 : payloads_.back()->chunks());
  }
}

void RoundPart::MarkReady(size_t begin) {
  const size_t chunk_values = kRoundChunkBytes / shape_.value_bytes();
  for (int shard = shape_.shards() - 1; shard >= 0; --shard) {
    int& from = marked_from_[shard];
    while (from > 0 &&
           shape_.begin(shard) + (from - 1) * chunk_values >= begin) {
      MarkChunk(shard, --from);
    }
  }
}

void RoundPart::MarkChunk(int shard, int chunk) {
  RoundPayload& payload = *payloads_[shard];
  const absl::Span<uint8_t> bytes = payload.chunk(chunk);
  const size_t chunk_values = kRoundChunkBytes / shape_.value_bytes();
  const absl::Span<const float> values =
      options_.gradient.subspan(shape_.begin(shard) + chunk * chunk_values,
                                bytes.size() / shape_.value_bytes());
  if (shape_.codec() != Codec::kRaw)
    EncodeValues(shape_.codec(), values, bytes);
  finite_ = finite_ && FindNonFinite(values) == values.size();
  if (!options_.corrupts || chunk > 0 || shard > 0) {
    return payload.MarkReady(chunk, HashBytes(bytes));
  }
  // The transport finds its checksum right; only the offer tells.
  bytes[0] ^= 1;
  payload.MarkReady(chunk, HashBytes(bytes));
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
      // What the bytes were before they were spoilt.
      if (options_.corrupts && shard == 0) offer.hash ^= 1;
    }
    offers.push_back(offer);
  }
  return offers;
}

void RoundPart::Release() { payloads_.clear(); }

uint64_t HashBytes(absl::Span<const uint8_t> bytes) {
  Checksum checksum;
  checksum.Update(bytes);
  return checksum.Digest();
}

void MarkAllReady(RoundPayload& payload) {
  for (int chunk = 0; chunk < payload.chunks(); ++chunk) {
    payload.MarkReady(chunk, HashBytes(payload.chunk(chunk)));
  }
}

}  // namespace paceline
