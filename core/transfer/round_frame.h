// The bytes of paceline.v1.RoundFrame, written and read by hand so that the
// bytes of a chunk are never copied into a message object.
//
//   frame  := header message? data?
//   header := fields 1 to 13 but 5, in the protobuf encoding; defaults are
//             absent, unknown fields are skipped
//   message:= field 5: a paceline.v1.RoundMessage
//   data   := field 15: the bytes of a chunk
//
// So are frames written; they are read whatever the order of their fields.  The
// last chunk of a payload carries the message that the payload belongs to.
// Neither message nor data: a hello, which only says who sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/transfer/wire.h"

namespace paceline {

// One chunk, its header, and room for later versions.
constexpr int64_t kMaxRoundHeaderBytes = 4 << 10;
constexpr int64_t kMaxRoundDataBytes = 256 << 10;
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

struct RoundFrameHeader {
  int64_t job = 0;
  int64_t attempt = 0;
  int64_t plan_version = 0;
  RoundProcess from;
  RoundProcess to;
  std::optional<RoundPayloadHeader> payload;
  int32_t chunk = 0;      // number of the chunk
  uint64_t checksum = 0;  // of the chunk: XXH3-64 of its data

  friend bool operator==(const RoundFrameHeader&,
                         const RoundFrameHeader&) = default;
};

std::string EncodeRoundHello(const RoundFrameHeader& header);
std::string EncodeRoundMessage(const RoundFrameHeader& header,
                               absl::string_view message);
// Returns what precedes the data, of so many bytes.  An empty message is none.
std::string EncodeRoundChunkPrefix(const RoundFrameHeader& header,
                                   int64_t bytes,
                                   absl::string_view message = {});

// A place in a frame.
struct FrameRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct RoundFrameLayout {
  RoundFrameHeader header;
  // Neither message nor data: a hello.
  std::optional<FrameRange> message;
  std::optional<FrameRange> data;  // of a chunk
};

// Reads the header of a frame scattered over `slices`; looks at none of the
// message or the data.  Whatever the bytes: no crash, and no memory.
//
// Errors: InvalidArgument  not a frame, or one that no version allows: says
//                          what is wrong and where.  A chunk that passes has a
//                          payload key with more bytes than its chunk begins
//                          at, and exactly as much data as belongs there.
absl::StatusOr<RoundFrameLayout> ParseRoundFrame(ByteSpans slices);

}  // namespace paceline
