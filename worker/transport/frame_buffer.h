// Frames to gRPC's buffers and back, without a copy of the payload.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/transfer/frame_codec.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace paceline {

// The frame's pieces, at least one.  The prefix has a slice of its own, then
// come slices over the tensors' memory, which is kept until gRPC has let go of
// it.  Tiny tensors are copied.
std::deque<grpc::ByteBuffer> ToByteBuffers(const EncodedFrame& frame);

// A view of a received message, or of several that make one frame.
// Thread-compatible; keeps its vectors from one message to the next.
class MessageView {
 public:
  // False when there are no bytes to see.  The slices hold on to the memory
  // until the next call or Clear().
  bool Open(const grpc::ByteBuffer& buffer);
  // Adds what comes after it; false as above.
  bool Append(const grpc::ByteBuffer& buffer);
  void Clear();

  // O(slices).
  absl::Span<const ByteSpan> spans();

 private:
  std::vector<grpc::Slice> message_;
  std::vector<grpc::Slice> slices_;
  std::vector<ByteSpan> spans_;
};

// Memory of received tensors, used again: the frames of a run have few sizes,
// and fresh memory costs a page fault every 4 KiB.

// Thread-safe.  Tensors may outlive it.
class TensorPool {
 public:
  // Keeps at most so many bytes of dropped tensors.
  explicit TensorPool(int64_t kept_bytes);

  // As Tensor::Allocate.
  Tensor Allocate(DType dtype, Shape shape);

 private:
  class Store;

  // Shared with the tensors, which give their memory back to it.
  const std::shared_ptr<Store> store_;
};

}  // namespace paceline
