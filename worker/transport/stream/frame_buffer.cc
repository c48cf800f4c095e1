#include "worker/transport/stream/frame_buffer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace paceline {
namespace {

// Smaller memory has no page of its own.
constexpr int64_t kSmallestBytes = 4 << 10;
// Labels of a few samples: a copy is cheaper than keeping their owner.
constexpr size_t kCopiedBytes = 256;

using Slices = absl::InlinedVector<grpc::Slice, 4>;

std::deque<grpc::ByteBuffer> CutSlices(const Slices& slices) {
  std::deque<grpc::ByteBuffer> chunks;
  Slices chunk;
  size_t room = kMaxChunkBytes;
  for (const grpc::Slice& slice : slices) {
    for (size_t begin = 0; begin < slice.size();) {
      const size_t end = std::min(slice.size(), begin + room);
      chunk.push_back(slice.sub(begin, end));
      room -= end - begin;
      begin = end;
      if (room > 0) continue;
      chunks.emplace_back(chunk.data(), chunk.size());
      chunk.clear();
      room = kMaxChunkBytes;
    }
  }
  if (!chunk.empty()) chunks.emplace_back(chunk.data(), chunk.size());
  return chunks;
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

grpc::Slice SharedSlice(uint8_t* data, size_t bytes,
                        std::shared_ptr<const void> owner) {
  using Owner = std::shared_ptr<const void>;
  return {data, bytes, [](void* kept) { delete static_cast<Owner*>(kept); },
          new Owner(std::move(owner))};
}

std::deque<grpc::ByteBuffer> ToByteBuffers(const EncodedFrame& frame) {
  Slices slices;
  slices.emplace_back(frame.prefix.data(), frame.prefix.size());
  for (const Tensor& tensor : frame.tensors) {
    const auto bytes = static_cast<size_t>(tensor.bytes());
    if (bytes > kCopiedBytes) {
      slices.push_back(SharedSlice(tensor.data.get(), bytes, tensor.data));
    } else if (bytes > 0) {
      slices.emplace_back(tensor.data.get(), bytes);
    }
  }
  const int64_t bytes = std::ssize(frame.prefix) + frame.payload_bytes;
  if (bytes > kMaxChunkBytes) return CutSlices(slices);
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
TensorPool::TensorPool(size_t kept_bytes)
    : pool_(kept_bytes, [](size_t bytes) {
        return Tensor::Allocate(DType::kU8, {static_cast<int64_t>(bytes)}).data;
      }) {}

Tensor TensorPool::Allocate(DType dtype, Shape shape) {
  Tensor tensor{dtype, std::move(shape), nullptr};
  const int64_t bytes = tensor.bytes();
  if (bytes < kSmallestBytes) {
    return Tensor::Allocate(dtype, std::move(tensor.shape));
  }
  tensor.data = pool_.Take(static_cast<size_t>(bytes));
  return tensor;
}

}  // namespace paceline
