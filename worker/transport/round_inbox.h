// RoundInbox takes what one member sends, on the stream that it sends on now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/round/view.h"
#include "core/transfer/frame_codec.h"
#include "core/transfer/round_frame.h"
#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_transport.h"
#include "worker/transport/near_memory.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

// Thread-compatible; calls the sink.
class RoundInbox {
 public:
  // `sink` and `counters` outlive this.
  RoundInbox(const MemberId& from, RoundSink& sink, PlaneCounters& counters)
      : from_(from), sink_(sink), counters_(counters) {}

  // Takes a piece or a message.  slices: those that `layout` was parsed from;
  // borrower: of the stream that it came on.
  // Errors: InvalidArgument  no member of ours would send it
  //         Aborted          a message whose bytes the sink did not want when
  //                          they came, and wants now: on the next stream its
  //                          sender sends them again
  //         DataLoss         a piece's checksum is wrong, or it cannot be read
  absl::Status Take(absl::Span<const ByteSpan> slices,
                    const RoundFrameLayout& layout, const Borrower& borrower);

  // A new stream begins: what it brings is announced anew.  As below.
  std::vector<std::shared_ptr<RoundPayload>> Clear();

  // Parts and results of steps before `step` are dropped from now on.  What is
  // returned is to be let go of without a lock.
  std::vector<std::shared_ptr<RoundPayload>> Forget(int64_t step);

  // A peer that names more payloads than that at a time is none of ours.
  static constexpr size_t kMostPayloads = 4096;

 private:
  struct Incoming {
    int64_t bytes = 0;
    std::shared_ptr<RoundPayload> payload;  // null: nowhere, as yet
    bool dropped = false;                   // some of its bytes were
  };

  bool IsForgotten(const PayloadKey& key) const;
  absl::Status TakePiece(absl::Span<const ByteSpan> slices,
                         const RoundFrameLayout& layout, const PayloadKey& key,
                         const Borrower& borrower);
  // Copies the bytes of a chunk there and gives their XXH3-64.
  using FetchChunk =
      absl::FunctionRef<absl::StatusOr<uint64_t>(absl::Span<uint8_t>)>;
  absl::Status TakeChunk(const PayloadKey& key, RoundPayload& payload,
                         int chunk, uint64_t checksum, FetchChunk fetch);
  absl::Status TakeMessage(absl::Span<const ByteSpan> slices,
                           const FrameRange& range,
                           const RoundFrameHeader& header);
  // Aborted: bytes of that kind and step were dropped, and are wanted now.
  absl::Status CheckDropped(const PayloadKey& of);
  // Where the bytes of `key` go; null: nowhere.
  absl::StatusOr<std::shared_ptr<RoundPayload>> Find(const PayloadKey& key,
                                                     int64_t bytes);

  const MemberId from_;
  RoundSink& sink_;
  PlaneCounters& counters_;
  std::map<PayloadKey, Incoming> payloads_;
  int64_t forgotten_before_ = 0;
};

}  // namespace paceline
