// Frames to gRPC's buffers and back, without a copy of the payload.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/transfer/frame_codec.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace paceline {

// The prefix in a slice of its own, then one slice a tensor over the tensor's
// memory, which is kept until gRPC has let go of it.  Tiny tensors are copied.
grpc::ByteBuffer ToByteBuffer(const EncodedFrame& frame);

// A view of a received message.  Thread-compatible; keeps its vectors from one
// message to the next.
class MessageView {
 public:
  // False when there are no bytes to see.  The slices hold on to the memory
  // until the next call or Clear().
  bool Open(const grpc::ByteBuffer& buffer);
  void Clear();

  absl::Span<const ByteSpan> spans() const { return spans_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<ByteSpan> spans_;
};

}  // namespace paceline
