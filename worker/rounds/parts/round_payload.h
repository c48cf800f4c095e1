// The bytes that belong to a round's message: a part or a result.  Chunks are
// filled in any order, while other threads already send, sum or hash them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"

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

  // Memory of its own, uninitialised.
  static std::shared_ptr<RoundPayload> Make(size_t bytes);
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
  bool IsReady(int chunk) const;
  bool complete() const;
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

// Memory for payloads, used again from step to step: fresh pages of a hundred
// megabytes cost as much as summing them.
//
// Thread-safe.  Its payloads may outlive it.
class BlockPool {
 public:
  // kept_bytes: as MemoryPool.
  explicit BlockPool(size_t kept_bytes);

  // Like RoundPayload::Make(): uninitialised, aligned to 64 bytes.
  std::shared_ptr<RoundPayload> Make(size_t bytes,
                                     size_t chunk_bytes = kRoundChunkBytes);

  size_t kept_bytes() const { return pool_.kept_bytes(); }

 private:
  MemoryPool pool_;
};

}  // namespace paceline
