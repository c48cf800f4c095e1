// The bytes of a frame, written and read by hand so that a payload is never
// copied into a message object: paceline.v1.StageFrame between stages,
// paceline.v1.RoundFrame between members of a round group.  Both have the
// protobuf encoding of one FrameHeader, whose fields frame_codec.cc lists with
// their numbers in either message; defaults are absent, unknown fields are
// skipped.
//
//   stage := header checksum payload?
//     checksum  field 16, fixed64: XXH3-64 over the header's bytes, then over
//               the payload's
//     payload   field 17: the tensors, each as its codec writes it, one after
//               the other, and the end of the frame; absent when there are no
//               bytes
//   round := header message? (checksum data)?
//     message   field 5: a paceline.v1.RoundMessage
//     checksum  field 9, fixed64: XXH3-64 of the data
//     data      field 15: the bytes of a chunk
//
// A frame of a round is read whatever the order of its fields.  The last chunk
// of a payload carries the message that the payload belongs to.  Neither
// message nor data: a hello, which only says who sends.
//
// A stage's frame larger than kMaxChunkBytes travels as several messages: these
// bytes, cut into chunks of that size and a last one.  So the receiver knows
// from the first chunk whether it wants the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/transfer/frame.h"
#include "core/transfer/wire.h"

namespace paceline {

// A header with the most tensors and dimensions is below 2 KiB; the rest is
// room for fields of later versions.
constexpr int64_t kMaxHeaderBytes = 64 << 10;
constexpr int64_t kMaxChunkBytes = 4 << 20;
constexpr size_t kMaxFrameTensors = 16;
constexpr size_t kMaxTensorDims = 8;
// The bounds of a round's frame.
constexpr int64_t kMaxRoundHeaderBytes = 4 << 10;
// The largest are results: 64 shards of 64 contributors take 0.1 MiB.
constexpr int64_t kMaxRoundMessageBytes = 256 << 10;

// A stage's frame on the wire: the prefix, then the tensors' memory.
struct EncodedFrame {
  std::string prefix;  // up to and with the payload's length
  TensorList tensors;  // uint8; raw ones shared, not copied
  int64_t payload_bytes = 0;
};

// The header's tensors are those of the frame; header.tensors is not looked at.
// codec: of its float32 tensors; others are raw.
// O(bytes), for the checksum.
EncodedFrame EncodeFrame(Frame frame, Codec codec = Codec::kRaw);

// Frames of rounds.
std::string EncodeRoundHello(const FrameHeader& header);
std::string EncodeRoundMessage(const FrameHeader& header,
                               absl::string_view message);
// Returns what precedes the data of `header.chunk`: so many bytes of that
// XXH3-64.  An empty message is none.
std::string EncodeRoundChunkPrefix(const FrameHeader& header, int64_t bytes,
                                   uint64_t checksum,
                                   absl::string_view message = {});

// A place in a frame.
struct FrameRange {
  int64_t offset = 0;
  int64_t bytes = 0;

  int64_t end() const { return offset + bytes; }
};

// The header of a frame, and the places of what follows it.
struct FrameLayout {
  FrameHeader header;
  uint64_t checksum = 0;
  int64_t header_bytes = 0;           // of a stage's: before the checksum
  FrameRange payload;                 // of a stage's
  std::optional<FrameRange> message;  // of a round's
  std::optional<FrameRange> data;     // of a round's: a chunk
};

// Reads the header of a stage's frame scattered over `slices`; looks at none of
// the payload.  Whatever the bytes: no crash, and no memory beyond a header's.
//
// Errors: InvalidArgument  not a frame, or one that no version allows: says
//                          what is wrong and where.  A frame that passes has a
//                          payload of exactly its tensors' bytes, and these
//                          take at most four times as much memory.
absl::StatusOr<FrameLayout> ParseFrame(ByteSpans slices);

// As ParseFrame, of a frame's first chunk; the others are still to come.
absl::StatusOr<FrameLayout> ParseFirstChunk(ByteSpans slices);

// The same of a round's frame; looks at none of the message or the data.
//
// Errors: InvalidArgument  as ParseFrame.  A chunk that passes has a payload
//                          key with more bytes than its chunk begins at, and
//                          exactly as much data as belongs there.
absl::StatusOr<FrameLayout> ParseRoundFrame(ByteSpans slices);

// Copies the payload into fresh tensors and checks it in the same pass; what a
// codec made smaller is decoded.
// slices: those that `layout` was parsed from.  allocate: as Tensor::Allocate.
// O(bytes).
// Errors: DataLoss  the checksum is wrong
absl::StatusOr<TensorList> ReadPayload(
    ByteSpans slices, const FrameLayout& layout,
    absl::FunctionRef<Tensor(DType, Shape)> allocate = Tensor::Allocate);

}  // namespace paceline
