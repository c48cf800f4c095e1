#include "worker/rpc/frame_buffer.h"

#include <memory>

#include "absl/container/inlined_vector.h"

namespace paceline {
namespace {

// Labels of a few samples: less than keeping their owner.
constexpr size_t kCopiedBytes = 256;

void Release(void* owner) {
  delete static_cast<std::shared_ptr<uint8_t>*>(owner);
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(const EncodedFrame& frame) {
  absl::InlinedVector<grpc::Slice, 4> slices;
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
  return grpc::ByteBuffer(slices.data(), slices.size());
}

bool MessageView::Open(const grpc::ByteBuffer& buffer) {
  Clear();
  if (!buffer.Valid() || !buffer.Dump(&slices_).ok()) return false;
  for (const grpc::Slice& slice : slices_) {
    spans_.emplace_back(slice.begin(), slice.size());
  }
  return true;
}

void MessageView::Clear() {
  spans_.clear();
  slices_.clear();
}

}  // namespace paceline
