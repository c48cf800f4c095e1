#include "worker/transport/round/round_inbox.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/rpc/convert/round_convert.h"
#include "paceline/v1/round.pb.h"

namespace paceline {
namespace {

static_assert(kMaxRoundDataBytes == static_cast<int64_t>(kRoundChunkBytes));

std::string Text(const PayloadKey& key) {
  constexpr const char* kNames[] = {"", "part", "result"};
  return absl::StrCat(kNames[static_cast<int>(key.kind)], " of step ", key.step,
                      ", shard ", key.shard);
}

}  // namespace

absl::Status RoundInbox::Take(absl::Span<const ByteSpan> slices,
                              const FrameLayout& layout) {
  if (!layout.message.has_value() && !layout.data.has_value()) {
    return absl::OkStatus();
  }
  ++counters_.frames_received;
  if (layout.data.has_value()) {
    PACELINE_RETURN_IF_ERROR(TakeChunk(slices, layout, *layout.header.payload));
  }
  return layout.message.has_value()
             ? TakeMessage(slices, *layout.message, layout.header)
             : absl::OkStatus();
}

absl::Status RoundInbox::TakeChunk(absl::Span<const ByteSpan> slices,
                                   const FrameLayout& layout,
                                   const PayloadKey& key) {
  counters_.bytes_received += layout.data->bytes;
  PACELINE_ASSIGN_OR_RETURN(const std::shared_ptr<RoundPayload> payload,
                            Find(key, layout.header.payload_bytes));
  if (payload == nullptr) {
    ++counters_.frames_dropped_old;
    return absl::OkStatus();
  }
  const FrameHeader& header = layout.header;
  if (header.chunk_bytes != static_cast<int64_t>(payload->chunk_bytes())) {
    return InvalidArgument("the ", Text(key), " comes in chunks of ",
                           header.chunk_bytes, " bytes, need ",
                           payload->chunk_bytes(),
                           ": its sender runs another version of Paceline");
  }
  if (payload->IsReady(header.chunk)) {
    ++counters_.frames_dropped_duplicate;
    return absl::OkStatus();
  }
  const uint64_t hash =
      CopyAndHash(slices, layout.data->offset, payload->chunk(header.chunk));
  if (hash != layout.checksum) {
    return DataLoss(
        "chunk ", header.chunk, " of the ", Text(key),
        " has another checksum than its sender said: send it again");
  }
  payload->MarkReady(header.chunk, hash);
  return absl::OkStatus();
}

absl::Status RoundInbox::TakeMessage(absl::Span<const ByteSpan> slices,
                                     const FrameRange& range,
                                     const FrameHeader& header) {
  v1::RoundMessage proto;
  if (!proto.ParseFromString(CopyBytes(slices, range.offset, range.bytes))) {
    return InvalidArgument("a message of ", range.bytes,
                           " bytes that is no message of a round");
  }
  PACELINE_ASSIGN_OR_RETURN(RoundMessage message,
                            FromProto(proto, header.fence.attempt, from_));
  std::shared_ptr<RoundPayload> payload;
  if (header.payload.has_value()) {
    const PayloadKey& key = *header.payload;
    PACELINE_RETURN_IF_ERROR(CheckDropped(key));
    PACELINE_ASSIGN_OR_RETURN(payload, Find(key, header.payload_bytes));
    if (payload != nullptr && !payload->complete()) {
      return InvalidArgument(
          "a message before the bytes that belong to it, the ", Text(key));
    }
  }
  sink_.OnMessage(std::move(message), std::move(payload));
  return absl::OkStatus();
}

// The sender counts all that the stream has carried as received, so it does not
// resend the dropped bytes on its own.
absl::Status RoundInbox::CheckDropped(const PayloadKey& of) {
  for (auto& [key, incoming] : payloads_) {
    if (key.kind != of.kind || key.step != of.step || !incoming.dropped) {
      continue;
    }
    PACELINE_ASSIGN_OR_RETURN(const std::shared_ptr<RoundPayload> payload,
                              Find(key, incoming.bytes));
    if (payload == nullptr || payload->complete()) continue;
    return Aborted("the ", Text(key),
                   " came too early and was dropped: send it again");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<RoundPayload>> RoundInbox::Find(
    const PayloadKey& key, int64_t bytes) {
  if (key.step < forgotten_before_) return nullptr;
  const auto found = payloads_.find(key);
  if (found != payloads_.end()) {
    if (found->second.bytes != bytes) {
      return InvalidArgument("the ", Text(key), " has ", bytes,
                             " bytes now, and had ", found->second.bytes);
    }
    if (found->second.payload != nullptr) return found->second.payload;
  } else if (payloads_.size() >= kMostPayloads) {
    return InvalidArgument("more than ", kMostPayloads, " payloads at a time");
  }
  PACELINE_ASSIGN_OR_RETURN(
      std::shared_ptr<RoundPayload> payload,
      sink_.OnPayload(from_, key, static_cast<size_t>(bytes)));
  PACELINE_CHECK(
      payload == nullptr || static_cast<int64_t>(payload->size()) == bytes,
      "memory for ", bytes, " bytes has another size");
  Incoming& incoming = payloads_[key];
  incoming.bytes = bytes;
  incoming.payload = payload;
  incoming.dropped = incoming.dropped || payload == nullptr;
  return payload;
}

std::vector<std::shared_ptr<RoundPayload>> RoundInbox::Clear() {
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  for (auto& [key, incoming] : payloads_) {
    dropped.push_back(std::move(incoming.payload));
  }
  payloads_.clear();
  return dropped;
}

std::vector<std::shared_ptr<RoundPayload>> RoundInbox::Forget(int64_t step) {
  forgotten_before_ = std::max(forgotten_before_, step);
  std::vector<std::shared_ptr<RoundPayload>> dropped;
  std::erase_if(payloads_, [&](auto& entry) {
    auto& [key, incoming] = entry;
    if (key.step >= step) return false;
    dropped.push_back(std::move(incoming.payload));
    return true;
  });
  return dropped;
}

}  // namespace paceline
