// The bytes of a frame: paceline.v1.StageFrame, written and read by hand so
// that a payload is never copied into a message object.
//
//   message := header checksum payload?
//   header  := fields 1 to 15 in the protobuf encoding; defaults are absent,
//              unknown fields are skipped
//   checksum:= field 16, fixed64: XXH3-64 over the header's bytes, then over
//              the payload's
//   payload := field 17: the tensors, each as its codec writes it, one after
//              the other, and the end of the message; absent when there are no
//              bytes
//
// A larger frame than kMaxPieceBytes travels as several messages: these bytes,
// cut into pieces of that size and a last one.  So the receiver knows from the
// first piece whether it wants the others.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/transfer/frame.h"
#include "core/transfer/wire.h"

namespace paceline {

// A header with the most tensors and dimensions is below 2 KiB; the rest is
// room for fields of later versions.
constexpr int64_t kMaxHeaderBytes = 64 << 10;
constexpr int64_t kMaxPieceBytes = 4 << 20;
constexpr size_t kMaxFrameTensors = 16;
constexpr size_t kMaxTensorDims = 8;

// On the wire: the prefix, then the tensors' memory.
struct EncodedFrame {
  std::string prefix;  // up to and with the payload's length
  TensorList tensors;  // uint8; raw ones shared, not copied
  int64_t payload_bytes = 0;
};

// The header's tensors are those of the frame; header.tensors is not looked at.
// codec: of its float32 tensors; others are raw.
// O(bytes), for the checksum.
EncodedFrame EncodeFrame(Frame frame, Codec codec = Codec::kRaw);

// The header of a message, and the place of its payload.
struct FrameLayout {
  FrameHeader header;
  uint64_t checksum = 0;
  int64_t header_bytes = 0;  // before the checksum
  int64_t payload_offset = 0;
  int64_t payload_bytes = 0;

  int64_t frame_bytes() const { return payload_offset + payload_bytes; }
};

// Reads the header of a message scattered over `slices`; looks at none of the
// payload.  Whatever the bytes: no crash, and no memory beyond a header's.
//
// Errors: InvalidArgument  not a frame, or one that no version allows: says
//                          what is wrong and where.  A frame that passes has a
//                          payload of exactly its tensors' bytes, and these
//                          take at most four times as much memory.
absl::StatusOr<FrameLayout> ParseFrame(ByteSpans slices);

// As ParseFrame, of a frame's first piece; the others are still to come.
absl::StatusOr<FrameLayout> ParseFirstPiece(ByteSpans slices);

// Copies the payload into fresh tensors and checks it in the same pass; what a
// codec made smaller is decoded.
// slices: those that `layout` was parsed from.  allocate: as Tensor::Allocate.
// O(bytes).
// Errors: DataLoss  the checksum is wrong
absl::StatusOr<TensorList> ReadPayload(
    ByteSpans slices, const FrameLayout& layout,
    absl::FunctionRef<Tensor(DType, Shape)> allocate = Tensor::Allocate);

}  // namespace paceline
