// The bytes of paceline.v1.RoundFrame, written and read by hand so that the
// bytes of a piece are never copied into a message object.
//
//   frame  := header message? data?
//   header := fields 1 to 13 but 5, in the protobuf encoding; defaults are
//             absent, unknown fields are skipped
//   message:= field 5: a paceline.v1.RoundMessage
//   data   := field 15: the bytes of a chunk
//
// So are frames written; they are read whatever the order of their fields.  The
// last chunk of a payload carries the message that the payload belongs to.
// Neither message nor data: pieces that are lent, if it has an address; else a
// hello, which only says who sends, and where its memory can be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/transfer/wire.h"

namespace paceline {

// One chunk, its header, and room for later versions.
constexpr int64_t kMaxRoundHeaderBytes = 4 << 10;
constexpr int64_t kMaxRoundDataBytes = 256 << 10;
// Chunks that one frame may lend; then a receiver can go on beside its sender.
constexpr int32_t kMostLentTogether = 4;
// The largest are results: 64 shards of 64 contributors take 0.1 MiB.
constexpr int64_t kMaxRoundMessageBytes = 256 << 10;

// A process, as core/round's MemberId.
struct RoundProcess {
  int64_t worker = 0;
  uint64_t incarnation = 0;

  friend bool operator==(const RoundProcess&, const RoundProcess&) = default;
};

// As worker/rounds/round_transport.h's PayloadKey, and how many bytes it names.
struct RoundPayloadHeader {
  uint8_t kind = 0;  // 1 to 3
  int64_t step = 0;
  int32_t shard = 0;
  uint64_t variant = 0;
  int64_t bytes = 0;
  int64_t chunk_bytes = kMaxRoundDataBytes;

  friend bool operator==(const RoundPayloadHeader&,
                         const RoundPayloadHeader&) = default;
};

// The memory of a sender that runs on the receiver's machine.
struct RoundMemory {
  int32_t process = 0;
  uint64_t word_address = 0;  // of the word that the receiver has told it

  friend bool operator==(const RoundMemory&, const RoundMemory&) = default;
};

struct RoundFrameHeader {
  int64_t job = 0;
  int64_t attempt = 0;
  int64_t plan_version = 0;
  RoundProcess from;
  RoundProcess to;
  std::optional<RoundPayloadHeader> payload;
  int32_t chunk = 0;                  // of a piece
  uint64_t checksum = 0;              // of a piece: XXH3-64 of its data
  uint64_t address = 0;               // of a lent piece, in the sender's memory
  std::vector<uint64_t> further;      // checksums of chunks lent behind it
  std::optional<RoundMemory> memory;  // of a hello

  friend bool operator==(const RoundFrameHeader&,
                         const RoundFrameHeader&) = default;
};

std::string EncodeRoundHello(const RoundFrameHeader& header);
std::string EncodeRoundMessage(const RoundFrameHeader& header,
                               absl::string_view message);
// Returns what precedes the data, of so many bytes.  An empty message is none.
std::string EncodeRoundPiecePrefix(const RoundFrameHeader& header,
                                   int64_t bytes,
                                   absl::string_view message = {});
// All of a frame that lends a chunk, at the address of the header, and those
// behind it whose checksums are in `further`.
std::string EncodeRoundLoan(const RoundFrameHeader& header,
                            absl::string_view message = {});

// A place in a frame.
struct FrameRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct RoundFrameLayout {
  RoundFrameHeader header;
  // Neither this nor a piece: a hello.
  std::optional<FrameRange> message;
  // A piece.  Lent ones lie in the sender's memory: their offset is not used,
  // and bytes counts all of them.
  std::optional<FrameRange> data;
};

// Reads the header of a frame scattered over `slices`; looks at none of the
// message or the data.  Whatever the bytes: no crash, and no memory.
//
// Errors: InvalidArgument  not a frame, or one that no version allows: says
//                          what is wrong and where.  A piece that passes has a
//                          payload key with more bytes than its chunk begins
//                          at, and exactly as much data as belongs there.
absl::StatusOr<RoundFrameLayout> ParseRoundFrame(ByteSpans slices);

}  // namespace paceline
