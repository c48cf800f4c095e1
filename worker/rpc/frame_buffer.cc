#include "worker/rpc/frame_buffer.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "absl/container/inlined_vector.h"

namespace paceline {
namespace {

// Labels of a few samples: less than keeping their owner.
constexpr size_t kCopiedBytes = 256;

void Release(void* owner) {
  delete static_cast<std::shared_ptr<uint8_t>*>(owner);
}

using Slices = absl::InlinedVector<grpc::Slice, 4>;

std::deque<grpc::ByteBuffer> Cut(const Slices& slices) {
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
  if (bytes > kMaxPieceBytes) return Cut(slices);
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

}  // namespace paceline
