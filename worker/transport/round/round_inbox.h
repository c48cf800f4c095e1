// RoundInbox takes the frames of one member, from that member's current stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/round/view.h"
#include "core/transfer/frame_codec.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// Thread-compatible; calls the sink.
class RoundInbox {
 public:
  // `sink` and `counters` outlive this.
  RoundInbox(const MemberId& from, RoundSink& sink, PlaneCounters& counters)
      : from_(from), sink_(sink), counters_(counters) {}

  // Takes a chunk or a message.  slices: the source of `layout`.
  // Errors: InvalidArgument  no correct member would send it
  //         Aborted          the sink did not want a message's bytes when they
  //                          came, and wants them now: the sender must send
  //                          them again on its next stream
  //         DataLoss         a chunk's checksum is wrong
  absl::Status Take(absl::Span<const ByteSpan> slices,
                    const FrameLayout& layout);

  // A new stream begins, which announces its payloads anew.  Returns payloads
  // that the caller must free without a lock.
  std::vector<std::shared_ptr<RoundPayload>> Clear();

  // Drops parts and results of steps before `step` from now on.  Returns
  // payloads that the caller must free without a lock.
  std::vector<std::shared_ptr<RoundPayload>> Forget(int64_t step);

  // A peer that names more payloads than this at a time is refused.
  static constexpr size_t kMostPayloads = 4096;

 private:
  struct Incoming {
    int64_t bytes = 0;
    std::shared_ptr<RoundPayload> payload;  // null: no place yet
    bool dropped = false;                   // some of its bytes were dropped
  };

  absl::Status TakeChunk(absl::Span<const ByteSpan> slices,
                         const FrameLayout& layout, const PayloadKey& key);
  absl::Status TakeMessage(absl::Span<const ByteSpan> slices,
                           const FrameRange& range, const FrameHeader& header);
  // Aborted: bytes of that kind and step were dropped, but are wanted now.
  absl::Status CheckDropped(const PayloadKey& of);
  // Returns the payload that takes the bytes of `key`; null: none.
  absl::StatusOr<std::shared_ptr<RoundPayload>> Find(const PayloadKey& key,
                                                     int64_t bytes);

  const MemberId from_;
  RoundSink& sink_;
  PlaneCounters& counters_;
  std::map<PayloadKey, Incoming> payloads_;
  int64_t forgotten_before_ = 0;
};

}  // namespace paceline
