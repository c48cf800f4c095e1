// Converts frames to gRPC's buffers and back, without a copy of the payload.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/transfer/frame_codec.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace paceline {

// A message of these bytes, copied.
grpc::ByteBuffer ToByteBuffer(const std::string& bytes);
// A slice of memory that `owner` keeps until gRPC has released the slice.
grpc::Slice SharedSlice(uint8_t* data, size_t bytes,
                        std::shared_ptr<const void> owner);

// Returns the frame's chunks, at least one.  The prefix has its own slice.  The
// slices after it point to the tensors' memory, which stays until gRPC has
// released it.  Tiny tensors are copied.
std::deque<grpc::ByteBuffer> ToByteBuffers(const EncodedFrame& frame);

// A view of a received message, or of several that make one frame.
// Thread-compatible; keeps its vectors from one message to the next.
class MessageView {
 public:
  // False when the buffer has no bytes.  The slices keep the memory until the
  // next call or Clear().
  bool Open(const grpc::ByteBuffer& buffer);
  // Adds the next message of the same frame; false as for Open().
  bool Append(const grpc::ByteBuffer& buffer);
  void Clear();

  // O(slices).
  absl::Span<const ByteSpan> spans();

 private:
  std::vector<grpc::Slice> message_;
  std::vector<grpc::Slice> slices_;
  std::vector<ByteSpan> spans_;
};

// A pool of memory for received tensors.  The frames of a run have few sizes,
// and fresh memory costs a page fault every 4 KiB.

// Thread-safe.  Tensors may outlive it.
class TensorPool {
 public:
  // Keeps at most `kept_bytes` of dropped tensors.
  explicit TensorPool(size_t kept_bytes);

  // As Tensor::Allocate.
  Tensor Allocate(DType dtype, Shape shape);

 private:
  MemoryPool pool_;
};

}  // namespace paceline
