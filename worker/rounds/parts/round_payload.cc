#include "worker/rounds/parts/round_payload.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/base/errors.h"
#include "core/base/random.h"

namespace paceline {
namespace {

constexpr std::align_val_t kAlignment{64};
// When memory is read and written from end to end, half of the cost of small
// pages is their lookup.  Less than two huge pages keeps small ones.
constexpr size_t kHugePage = size_t{2} << 20;

MemoryPool::Block Allocate(size_t bytes) {
  const bool huge = bytes >= 2 * kHugePage;
  const std::align_val_t alignment =
      huge ? std::align_val_t{kHugePage} : kAlignment;
  MemoryPool::Block block(
      static_cast<uint8_t*>(
          ::operator new[](std::max<size_t>(bytes, 1), alignment)),
      [alignment](uint8_t* data) { ::operator delete[](data, alignment); });
  // A kernel without huge pages uses small ones.
  if (huge) madvise(block.get(), bytes, MADV_HUGEPAGE);
  return block;
}

}  // namespace

RoundPayload::RoundPayload(uint8_t* data, size_t size,
                           std::shared_ptr<void> owner,
                           const ChunkLayout& layout)
    : data_(data),
      size_(size),
      owner_(std::move(owner)),
      layout_(layout),
      hashes_count_((size + layout.chunk_bytes - 1) / layout.chunk_bytes),
      hashes_(hashes_count_),
      ready_(hashes_count_, false) {}

std::shared_ptr<RoundPayload> RoundPayload::Make(size_t bytes) {
  // Not make_unique: that would write zeros over every page.
  std::shared_ptr<uint8_t[]> memory(new uint8_t[bytes]);
  uint8_t* const data = memory.get();
  return Over(data, bytes, std::move(memory));
}

std::shared_ptr<RoundPayload> RoundPayload::Over(uint8_t* data, size_t size,
                                                 std::shared_ptr<void> owner,
                                                 const ChunkLayout& layout) {
  return std::shared_ptr<RoundPayload>(
      new RoundPayload(data, size, std::move(owner), layout));
}

absl::Span<uint8_t> RoundPayload::chunk(int index) const {
  PACELINE_CHECK(index >= 0 && index < chunks(), "a chunk of another payload");
  const auto before = static_cast<size_t>(index);
  const size_t at = before * layout_.chunk_bytes;
  return {data_ + at + before * layout_.gap_bytes,
          std::min(layout_.chunk_bytes, size_ - at)};
}

absl::Span<uint8_t> RoundPayload::mutable_bytes() const {
  PACELINE_CHECK(layout_.gap_bytes == 0 || chunks() <= 1, "a gap in between");
  return {data_, size_};
}

void RoundPayload::MarkReady(int chunk, uint64_t hash) {
  std::vector<OnReady> subscribers;
  {
    const absl::MutexLock lock(&mutex_);
    if (ready_.at(chunk)) return;
    ready_[chunk] = true;
    hashes_[chunk] = hash;
    ++ready_count_;
    subscribers = subscribers_;
  }
  for (const OnReady& each : subscribers) each(chunk);
}

bool RoundPayload::IsReady(int chunk) const {
  const absl::MutexLock lock(&mutex_);
  return ready_.at(chunk);
}

bool RoundPayload::complete() const {
  const absl::MutexLock lock(&mutex_);
  return ready_count_ == hashes_count_;
}

uint64_t RoundPayload::hash() const {
  const absl::MutexLock lock(&mutex_);
  PACELINE_CHECK(ready_count_ == hashes_count_, "a hash of half a payload");
  uint64_t hash = MixSeed({size_});
  for (const uint64_t each : hashes_) hash = MixSeed({hash, each});
  return std::max<uint64_t>(hash, 1);
}

uint64_t RoundPayload::chunk_hash(int chunk) const {
  const absl::MutexLock lock(&mutex_);
  PACELINE_CHECK(ready_.at(chunk), "a hash of a chunk that is not here");
  return hashes_[chunk];
}

void RoundPayload::Subscribe(OnReady on_ready) {
  std::vector<int> here;
  {
    const absl::MutexLock lock(&mutex_);
    for (int i = 0; i < chunks(); ++i) {
      if (ready_[i]) here.push_back(i);
    }
    subscribers_.push_back(on_ready);
  }
  for (const int chunk : here) on_ready(chunk);
}

// --- Pool -------------------------------------------------------------------

BlockPool::BlockPool(size_t kept_bytes) : pool_(kept_bytes, &Allocate) {}

std::shared_ptr<RoundPayload> BlockPool::Make(size_t bytes,
                                              size_t chunk_bytes) {
  MemoryPool::Block block = pool_.Take(bytes);
  uint8_t* const memory = block.get();
  return RoundPayload::Over(memory, bytes, std::move(block), {chunk_bytes, 0});
}

}  // namespace paceline
