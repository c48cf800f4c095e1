#include "worker/transport/frame_buffer.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"

namespace paceline {
namespace {

// Labels of a few samples: a copy is cheaper than keeping their owner.
constexpr size_t kCopiedBytes = 256;

void Release(void* owner) {
  delete static_cast<std::shared_ptr<uint8_t>*>(owner);
}

using Slices = absl::InlinedVector<grpc::Slice, 4>;

std::deque<grpc::ByteBuffer> CutSlices(const Slices& slices) {
  std::deque<grpc::ByteBuffer> pieces;
  Slices piece;
  size_t room = kMaxPieceBytes;
  for (const grpc::Slice& slice : slices) {
    for (size_t begin = 0; begin < slice.size();) {
      const size_t end = std::min(slice.size(), begin + room);
      piece.push_back(slice.sub(begin, end));
      room -= end - begin;
      begin = end;
      if (room > 0) continue;
      pieces.emplace_back(piece.data(), piece.size());
      piece.clear();
      room = kMaxPieceBytes;
    }
  }
  if (!piece.empty()) pieces.emplace_back(piece.data(), piece.size());
  return pieces;
}

}  // namespace

std::deque<grpc::ByteBuffer> ToByteBuffers(const EncodedFrame& frame) {
  Slices slices;
  slices.emplace_back(frame.prefix.data(), frame.prefix.size());
  for (const Tensor& tensor : frame.tensors) {
    const auto bytes = static_cast<size_t>(tensor.bytes());
    if (bytes > kCopiedBytes) {
      slices.emplace_back(tensor.data.get(), bytes, &Release,
                          new std::shared_ptr<uint8_t>(tensor.data));
    } else if (bytes > 0) {
      slices.emplace_back(tensor.data.get(), bytes);
    }
  }
  const int64_t bytes = std::ssize(frame.prefix) + frame.payload_bytes;
  if (bytes > kMaxPieceBytes) return CutSlices(slices);
  std::deque<grpc::ByteBuffer> whole;
  whole.emplace_back(slices.data(), slices.size());
  return whole;
}

bool MessageView::Open(const grpc::ByteBuffer& buffer) {
  Clear();
  return buffer.Valid() && buffer.Dump(&slices_).ok();
}

bool MessageView::Append(const grpc::ByteBuffer& buffer) {
  if (!buffer.Valid() || !buffer.Dump(&message_).ok()) return false;
  slices_.insert(slices_.end(), message_.begin(), message_.end());
  message_.clear();
  return true;
}

absl::Span<const ByteSpan> MessageView::spans() {
  spans_.clear();
  for (const grpc::Slice& slice : slices_) {
    spans_.emplace_back(slice.begin(), slice.size());
  }
  return spans_;
}

void MessageView::Clear() {
  spans_.clear();
  slices_.clear();
}
namespace {

// Smaller memory has no page of its own.
constexpr int64_t kSmallestBytes = 4 << 10;

}  // namespace

class TensorPool::Store {
 public:
  explicit Store(int64_t kept_bytes) : limit_(kept_bytes) {}

  // Null when there is no memory of that size.
  std::shared_ptr<uint8_t> Take(int64_t bytes) {
    absl::MutexLock lock(&mutex_);
    const auto found = kept_.find(bytes);
    if (found == kept_.end() || found->second.empty()) return nullptr;
    std::shared_ptr<uint8_t> memory = std::move(found->second.back());
    found->second.pop_back();
    kept_bytes_ -= bytes;
    return memory;
  }

  // Leaves `memory` to the caller, to free, when there is no room.
  void Keep(int64_t bytes, std::shared_ptr<uint8_t>& memory) {
    absl::MutexLock lock(&mutex_);
    if (kept_bytes_ + bytes > limit_) return;
    kept_bytes_ += bytes;
    kept_[bytes].push_back(std::move(memory));
  }

 private:
  const int64_t limit_;

  absl::Mutex mutex_;
  int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::vector<std::shared_ptr<uint8_t>>> kept_
      ABSL_GUARDED_BY(mutex_);  // by bytes
};

TensorPool::TensorPool(int64_t kept_bytes)
    : store_(std::make_shared<Store>(kept_bytes)) {}

Tensor TensorPool::Allocate(DType dtype, Shape shape) {
  Tensor tensor{dtype, std::move(shape), nullptr};
  const int64_t bytes = tensor.bytes();
  if (bytes < kSmallestBytes) {
    return Tensor::Allocate(dtype, std::move(tensor.shape));
  }
  std::shared_ptr<uint8_t> memory = store_->Take(bytes);
  if (memory == nullptr) {
    memory = Tensor::Allocate(DType::kU8, {bytes}).data;
  }
  uint8_t* const data = memory.get();
  tensor.data = std::shared_ptr<uint8_t>(
      data, [store = store_, bytes, memory = std::move(memory)](
                uint8_t*) mutable { store->Keep(bytes, memory); });
  return tensor;
}

}  // namespace paceline
