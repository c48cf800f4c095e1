#include "core/base/tensor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

struct DTypeTraits {
  absl::string_view name;
  int64_t bytes;
};

// By DType.
constexpr std::array<DTypeTraits, kDTypes> kTraits = {{{"unspecified", 0},
                                                       {"F32", 4},
                                                       {"BF16", 2},
                                                       {"F16", 2},
                                                       {"I64", 8},
                                                       {"I32", 4},
                                                       {"U8", 1}}};

const DTypeTraits& TraitsOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return kTraits[index < kTraits.size() ? index : 0];
}

// No other memory is published through these.
constexpr std::memory_order kOrder = std::memory_order_relaxed;

std::atomic<int64_t> now{0};
std::atomic<int64_t> peak{0};

}  // namespace

int64_t NumElements(absl::Span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return -1;
  }
  return count;
}

int64_t TensorBytes(DType dtype, absl::Span<const int64_t> shape) {
  const int64_t count = NumElements(shape);
  int64_t bytes = 0;
  if (count < 0 || __builtin_mul_overflow(count, ElementBytes(dtype), &bytes)) {
    return -1;
  }
  return bytes;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

Shape Batched(int64_t samples, absl::Span<const int64_t> sample) {
  Shape shape = {samples};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

Tensor Tensor::Zeros(DType dtype, Shape shape) {
  Tensor tensor = Allocate(dtype, std::move(shape));
  std::memset(tensor.data.get(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::Allocate(DType dtype, Shape shape) {
  constexpr std::align_val_t kAlignment{64};
  Tensor tensor{dtype, std::move(shape), nullptr};
  PACELINE_CHECK(tensor.bytes() >= 0, "bytes=", tensor.bytes());
  const size_t bytes = std::max<int64_t>(tensor.bytes(), 1);
  tensor.data = std::shared_ptr<uint8_t>(
      static_cast<uint8_t*>(::operator new(bytes, kAlignment)),
      [bytes](uint8_t* memory) {
        ::operator delete(memory, kAlignment);
        CountTensorBytes(-static_cast<int64_t>(bytes));
      });
  CountTensorBytes(static_cast<int64_t>(bytes));
  return tensor;
}

int64_t ElementBytes(DType dtype) { return TraitsOf(dtype).bytes; }

absl::string_view DTypeName(DType dtype) { return TraitsOf(dtype).name; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (size_t value = 1; value < kTraits.size(); ++value) {
    if (kTraits[value].name == name) return static_cast<DType>(value);
  }
  return std::nullopt;
}

void CountTensorBytes(int64_t bytes) {
  const int64_t after = now.fetch_add(bytes, kOrder) + bytes;
  int64_t highest = peak.load(kOrder);
  while (bytes > 0 && after > highest &&
         !peak.compare_exchange_weak(highest, after, kOrder, kOrder)) {
  }
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
