#include "core/base/tensor_memory.h"

#include <atomic>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace paceline {
namespace {

// No other memory is published through these.
constexpr std::memory_order kOrder = std::memory_order_relaxed;

std::atomic<int64_t> now{0};
std::atomic<int64_t> peak{0};

void RaisePeak(int64_t bytes) {
  int64_t highest = peak.load(kOrder);
  while (bytes > highest &&
         !peak.compare_exchange_weak(highest, bytes, kOrder, kOrder)) {
  }
}

}  // namespace

void CountTensorBytes(int64_t bytes) {
  const int64_t after = now.fetch_add(bytes, kOrder) + bytes;
  if (bytes > 0) RaisePeak(after);
}

int64_t TensorBytesNow() { return now.load(kOrder); }

int64_t TensorBytesPeak() { return peak.load(kOrder); }

void BeginTensorPeak() { peak.store(now.load(kOrder), kOrder); }

struct MemoryPool::Shelf {
  Shelf(size_t most, std::function<Block(size_t)> make)
      : most_bytes(most), allocate(std::move(make)) {}

  const size_t most_bytes;
  const std::function<Block(size_t)> allocate;

  absl::Mutex mutex;
  size_t kept_bytes ABSL_GUARDED_BY(mutex) = 0;
  std::multimap<size_t, Block> blocks ABSL_GUARDED_BY(mutex);  // by size
};

MemoryPool::MemoryPool(size_t kept_bytes,
                       std::function<Block(size_t bytes)> allocate)
    : shelf_(std::make_shared<Shelf>(kept_bytes, std::move(allocate))) {}

MemoryPool::Block MemoryPool::Take(size_t bytes) {
  Block block;
  {
    absl::MutexLock lock(&shelf_->mutex);
    const auto found = shelf_->blocks.find(bytes);
    if (found != shelf_->blocks.end()) {
      block = std::move(found->second);
      shelf_->blocks.erase(found);
      shelf_->kept_bytes -= bytes;
    }
  }
  if (block == nullptr) block = shelf_->allocate(bytes);
  uint8_t* const data = block.get();
  // A block that is not kept is freed with the closure, without the lock.
  return Block(data, [shelf = shelf_, bytes,
                      block = std::move(block)](uint8_t*) mutable {
    absl::MutexLock lock(&shelf->mutex);
    if (shelf->kept_bytes + bytes > shelf->most_bytes) return;
    shelf->kept_bytes += bytes;
    shelf->blocks.emplace(bytes, std::move(block));
  });
}

size_t MemoryPool::kept_bytes() const {
  absl::MutexLock lock(&shelf_->mutex);
  return shelf_->kept_bytes;
}

}  // namespace paceline
