#include "worker/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace paceline {
namespace {

constexpr std::align_val_t kAlignment{64};
// Where memory is read and written from end to end, half of what small pages
// cost is looking them up.  Less than two of these is left as it is.
constexpr size_t kHugePage = size_t{2} << 20;

std::align_val_t AlignmentOf(size_t bytes) {
  return bytes < 2 * kHugePage ? kAlignment : std::align_val_t{kHugePage};
}

uint8_t* Allocate(size_t bytes) {
  void* const block = ::operator new[](bytes, AlignmentOf(bytes));
  // A kernel that has none goes on with small ones.
  if (bytes >= 2 * kHugePage) madvise(block, bytes, MADV_HUGEPAGE);
  return static_cast<uint8_t*>(block);
}

}  // namespace

void BlockPool::Freed::operator()(uint8_t* block) const {
  ::operator delete[](block, AlignmentOf(bytes));
}

BlockPool::Block BlockPool::Shelf::Take(size_t bytes) {
  {
    absl::MutexLock lock(&mutex);
    const auto found = blocks.find(bytes);
    if (found != blocks.end()) {
      Block block = std::move(found->second);
      blocks.erase(found);
      bytes_kept -= bytes;
      return block;
    }
  }
  return Block(Allocate(std::max<size_t>(bytes, 1)), Freed{bytes});
}

// What does not fit is freed by the caller, without the lock.
void BlockPool::Shelf::Put(size_t bytes, Block block) {
  absl::MutexLock lock(&mutex);
  if (bytes_kept + bytes > most_bytes) return;
  bytes_kept += bytes;
  blocks.emplace(bytes, std::move(block));
}

BlockPool::BlockPool(size_t kept_bytes)
    : shelf_(std::make_shared<Shelf>(kept_bytes)) {}

std::shared_ptr<RoundPayload> BlockPool::Make(size_t bytes) {
  uint8_t* const memory = shelf_->Take(bytes).release();
  std::shared_ptr<void> owner(memory, [shelf = shelf_, bytes](void* block) {
    shelf->Put(bytes, Block(static_cast<uint8_t*>(block), Freed{bytes}));
  });
  return RoundPayload::Over(absl::MakeSpan(memory, bytes), std::move(owner));
}

size_t BlockPool::kept_bytes() const {
  absl::MutexLock lock(&shelf_->mutex);
  return shelf_->bytes_kept;
}

}  // namespace paceline
