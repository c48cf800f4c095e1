// The bytes of rounds.  RoundPayload: a part or a result that belongs to a
// message; chunks are filled in any order, while other threads already send,
// sum or hash them.  RoundShape: how a gradient is cut.  RoundPart: a member's
// own part, while it is being computed and until the round is over.
// RoundStore: payloads of peers, and results that this member made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/cluster/run_order.h"
#include "core/round/message.h"
#include "core/transfer/frame.h"
#include "core/transfer/tensor_codec.h"

namespace paceline {

// The largest chunk in which bytes travel, are hashed and are summed; equal on
// all members.
inline constexpr size_t kRoundChunkBytes = size_t{256} << 10;

struct ChunkLayout {
  size_t chunk_bytes = kRoundChunkBytes;
  size_t gap_bytes = 0;  // between a chunk and the next one
};

// Thread-safe.  One thread writes a chunk before MarkReady(), and never
// afterwards; until then no other thread reads it.
class RoundPayload {
 public:
  // Called once a chunk, on the thread that marks it; must be quick.
  using OnReady = std::function<void(int chunk)>;

  // Memory that `owner` keeps alive; size: without the gaps.
  static std::shared_ptr<RoundPayload> Over(uint8_t* data, size_t size,
                                            std::shared_ptr<void> owner,
                                            const ChunkLayout& layout = {});

  size_t size() const { return size_; }
  size_t chunk_bytes() const { return layout_.chunk_bytes; }
  int chunks() const { return static_cast<int>(hashes_count_); }
  // [begin, end) of a chunk in bytes.
  absl::Span<uint8_t> chunk(int index) const;
  // For payloads without gaps.
  absl::Span<const uint8_t> bytes() const { return mutable_bytes(); }
  absl::Span<uint8_t> mutable_bytes() const;

  // hash: XXH3-64 of the chunk.  Repeating is ignored.
  void MarkReady(int chunk, uint64_t hash);
  bool IsReady(int chunk) const {
    const absl::MutexLock lock(&mutex_);
    return ready_.at(chunk);
  }
  bool complete() const {
    const absl::MutexLock lock(&mutex_);
    return ready_count_ == hashes_count_;
  }
  // Over the hashes of all chunks in order; the payload is complete.  Never 0.
  uint64_t hash() const;
  uint64_t chunk_hash(int chunk) const;  // of a ready chunk

  // Calls `on_ready` from now on, and at once, on this thread, for chunks that
  // are ready already.
  void Subscribe(OnReady on_ready);

 private:
  RoundPayload(uint8_t* data, size_t size, std::shared_ptr<void> owner,
               const ChunkLayout& layout);

  uint8_t* const data_;
  const size_t size_;
  const std::shared_ptr<void> owner_;
  const ChunkLayout layout_;
  const size_t hashes_count_;

  mutable absl::Mutex mutex_;
  std::vector<uint64_t> hashes_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> ready_ ABSL_GUARDED_BY(mutex_);
  size_t ready_count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<OnReady> subscribers_ ABSL_GUARDED_BY(mutex_);
};

// Marks all chunks ready, with their hashes.
void MarkAllReady(RoundPayload& payload);

// Memory for payloads, used again from step to step: fresh pages of a hundred
// megabytes cost as much as summing them.
//
// Thread-safe.  Its payloads may outlive it.
class BlockPool {
 public:
  // kept_bytes: as MemoryPool.
  explicit BlockPool(size_t kept_bytes);

  // Uninitialised, aligned to 64 bytes.
  std::shared_ptr<RoundPayload> Make(size_t bytes,
                                     size_t chunk_bytes = kRoundChunkBytes);

  size_t kept_bytes() const { return pool_.kept_bytes(); }

 private:
  MemoryPool pool_;
};

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
  int chunks() const {
    return static_cast<int>((values_ + chunk_values_ - 1) / chunk_values_);
  }
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
  void Release() { payloads_.clear(); }
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

// The most payloads of one sender at a time.
struct StoreLimits {
  size_t steps = 0;
  int variants = 0;  // of one step and shard
};

// Thread-safe.
class RoundStore {
 public:
  // pool outlives this.
  RoundStore(const RoundShape& shape, BlockPool& pool,
             const StoreLimits& limits)
      : shape_(shape), pool_(pool), limits_(limits) {}

  // Memory for a payload of `from`, the same for the same key.  Null: the
  // sender has reached its limits.
  std::shared_ptr<RoundPayload> Incoming(const MemberId& from,
                                         const PayloadKey& key);

  // Adds a complete result, which is found by its hash from now on.
  // variant: the one under which this member sends it.
  void AddResult(int64_t step, int shard, uint64_t variant,
                 std::shared_ptr<RoundPayload> payload);
  // FindResult() also finds complete results that came without a message.
  struct Result {
    std::shared_ptr<RoundPayload> payload;  // null: not here
    uint64_t variant = 0;
  };
  Result FindResult(int64_t step, int shard, uint64_t hash);

  // Drops all payloads of steps before `step`.
  void Forget(int64_t step);
  // Drops what senders that are not among `peers` have sent.
  void Retain(const std::vector<GroupWorker>& peers);

 private:
  using ResultId = std::tuple<int64_t, int, uint64_t>;  // step, shard, hash
  using SenderKey = std::pair<PayloadKey, MemberId>;

  const RoundShape shape_;
  BlockPool& pool_;
  const StoreLimits limits_;

  absl::Mutex mutex_;
  std::map<ResultId, Result> results_ ABSL_GUARDED_BY(mutex_);
  std::map<SenderKey, std::shared_ptr<RoundPayload>> incoming_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline
