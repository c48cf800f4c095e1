// A member's own part of a round, while it is being computed and until the
// round is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "core/round/message.h"
#include "core/transfer/tensor_codec.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {

// A function of the job's settings, and so equal on all members in any view.
// A value type.
class RoundShape {
 public:
  // values: float32 of the gradient; shards >= 1; codec: kRaw (called fp32) or
  // kBf16.
  RoundShape(size_t values, int shards, Codec codec);

  size_t values() const { return values_; }
  int shards() const { return shards_; }
  Codec codec() const { return codec_; }

  // The gradient is cut into chunks of equal size, whole blocks of kRuleBlock
  // values; the last one may be shorter.  Chunk i is of shard i mod shards, as
  // its chunk i / shards.  A backward computes the gradient from its end to its
  // beginning, so that all servers have something to receive at any time.  With
  // fewer chunks than shards, some shards are empty.
  int chunks() const;
  size_t chunk_values() const { return chunk_values_; }
  // `chunk` is one of the gradient's.
  int shard_of(int chunk) const { return chunk % shards_; }
  int index_of(int chunk) const { return chunk / shards_; }
  size_t begin(int chunk) const { return chunk * chunk_values_; }
  size_t values(int shard) const;

  size_t value_bytes() const { return codec_ == Codec::kBf16 ? 2 : 4; }
  size_t bytes(int shard) const { return values(shard) * value_bytes(); }
  // Memory for a shard.
  std::shared_ptr<RoundPayload> Make(int shard, BlockPool& pool) const {
    return pool.Make(bytes(shard), chunk_values_ * value_bytes());
  }

 private:
  size_t values_;
  int shards_;
  Codec codec_;
  size_t chunk_values_;
};

// Convert bytes of a shard to float32, and back (rounded to nearest even);
// bytes.size() is values.size() * value_bytes().
void DecodeValues(Codec codec, absl::Span<const uint8_t> bytes,
                  absl::Span<float> values);
void EncodeValues(Codec codec, absl::Span<const float> values,
                  absl::Span<uint8_t> bytes);

struct PartOptions {
  int64_t step = 0;
  uint64_t division = 0;       // DivisionOf()
  absl::Span<float> gradient;  // [values]; the caller's memory

  // Faults on purpose.
  bool lies = false;        // offers values that are not finite as usable
  bool corrupts = false;    // the bytes are not those that the offer names
  bool duplicates = false;  // sends each offer twice
};

// The bytes of the part, one payload a shard: the gradient's own memory (fp32),
// or rounded copies.  Lives on the compute thread; the payloads do not.
class RoundPart {
 public:
  // The caller keeps the gradient's memory until released() is notified.
  RoundPart(const PartOptions& options, const RoundShape& shape,
            BlockPool& pool);

  const PartOptions& options() const { return options_; }
  // [shards]; null where the shard is empty.
  const std::vector<std::shared_ptr<RoundPayload>>& payloads() const {
    return payloads_;
  }
  // Values [begin, all) do not change any more; begin never grows.  Encodes,
  // checks and hashes the chunks that are whole now: one pass over them.
  void MarkReady(size_t begin);
  // One offer a shard, when all chunks are ready.  With NaN or infinity in the
  // gradient, samples are 0 unless `lies` is set.
  std::vector<PartOffer> Offers(int64_t samples) const;

  // False: other members will refuse the part that is offered as usable.
  bool honest() const { return finite_ ? !options_.corrupts : !options_.lies; }

  // Drops the payloads.  released() is notified when no other holder is left.
  void Release();
  const absl::Notification& released() const { return *released_; }

 private:
  void MarkChunk(int chunk);  // of the gradient

  const PartOptions options_;
  const RoundShape shape_;
  // Notified by the last owner that drops the gradient's memory; shared with
  // these owners.
  const std::shared_ptr<absl::Notification> released_;
  std::vector<std::shared_ptr<RoundPayload>> payloads_;
  int marked_from_;  // the gradient's chunks from here on are ready
  bool finite_ = true;
};

// Marks all chunks ready, with their hashes.
void MarkAllReady(RoundPayload& payload);

}  // namespace paceline
