#include "core/transfer/round_frame.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

// Fields of RoundFrame, GroupMember and PayloadKey.
enum RoundField : uint32_t {
  kRoundJob = 1,
  kRoundAttempt = 2,
  kRoundFrom = 3,
  kRoundTo = 4,
  kRoundMessage = 5,
  kRoundPayload = 6,
  kRoundPayloadBytes = 7,
  kRoundChunk = 8,
  kRoundChecksum = 9,
  kRoundPlanVersion = 13,
  kRoundChunkBytes = 14,
  kRoundData = 15,
};
enum ProcessField : uint32_t { kWorker = 1, kIncarnation = 2 };
enum KeyField : uint32_t {
  kKeyKind = 1,
  kKeyStep = 2,
  kShard = 3,
  kVariant = 4
};

constexpr uint64_t kMostKeyKind = 3;
constexpr int64_t kMaxPayloadBytes = int64_t{1} << 40;

std::string ProcessBody(const RoundProcess& process) {
  std::string body;
  AppendIntField(&body, kWorker, process.worker);
  AppendFixed64Field(&body, kIncarnation, process.incarnation);
  return body;
}

std::string KeyBody(const RoundPayloadHeader& payload) {
  std::string body;
  AppendIntField(&body, kKeyKind, payload.kind);
  AppendIntField(&body, kKeyStep, payload.step);
  AppendIntField(&body, kShard, payload.shard);
  AppendFixed64Field(&body, kVariant, payload.variant);
  return body;
}

// Reads the fields, in any order.
class RoundFrameParser {
 public:
  explicit RoundFrameParser(ByteSpans slices)
      : total_bytes_(TotalBytes(slices)), reader_(slices, total_bytes_) {}

  absl::StatusOr<RoundFrameLayout> Parse() {
    constexpr int64_t kMost =
        kMaxRoundHeaderBytes + kMaxRoundMessageBytes + kMaxRoundDataBytes;
    if (total_bytes_ > kMost) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a frame of ", total_bytes_, " bytes, at most ", kMost, " may be"));
    }
    while (!reader_.done()) {
      PACELINE_ASSIGN_OR_RETURN(const WireReader::Field field,
                                reader_.ReadField());
      PACELINE_RETURN_IF_ERROR(ReadAny(field));
    }
    PACELINE_RETURN_IF_ERROR(CheckWhole());
    return std::move(layout_);
  }

 private:
  using Field = WireReader::Field;

  absl::Status ReadAny(const Field& field) {
    switch (field.number) {
      case kRoundJob:
        return reader_.ReadCount(field, &layout_.header.job);
      case kRoundAttempt:
        return reader_.ReadCount(field, &layout_.header.attempt);
      case kRoundPlanVersion:
        return reader_.ReadCount(field, &layout_.header.plan_version);
      case kRoundFrom:
        return ReadProcess(field, &layout_.header.from);
      case kRoundTo:
        return ReadProcess(field, &layout_.header.to);
      case kRoundPayload:
        layout_.header.payload.emplace(payload_);
        return ReadKey(field, &*layout_.header.payload);
      case kRoundPayloadBytes:
        return reader_.ReadCount(field, &payload_.bytes);
      case kRoundChunkBytes:
        return reader_.ReadCount(field, &payload_.chunk_bytes);
      case kRoundChunk:
        return reader_.ReadCount(field, &layout_.header.chunk);
      case kRoundChecksum:
        return reader_.ReadFixed64(field, &layout_.header.checksum);
      case kRoundMessage:
        return ReadBody(field, layout_.message);
      case kRoundData:
        return ReadBody(field, layout_.data);
      default:
        return reader_.Skip(field.type);
    }
  }

  // Calls `read` for each field inside of `outer`.
  absl::Status ReadFields(const Field& outer,
                          absl::FunctionRef<absl::Status(const Field&)> read) {
    return reader_.ReadInside(outer, [&]() -> absl::Status {
      PACELINE_ASSIGN_OR_RETURN(const Field field, reader_.ReadField());
      return read(field);
    });
  }

  absl::Status ReadProcess(const Field& outer, RoundProcess* process) {
    return ReadFields(outer, [this, process](const Field& field) {
      switch (field.number) {
        case kWorker:
          return reader_.ReadCount(field, &process->worker);
        case kIncarnation:
          return reader_.ReadFixed64(field, &process->incarnation);
        default:
          return reader_.Skip(field.type);
      }
    });
  }

  absl::Status ReadKey(const Field& outer, RoundPayloadHeader* payload) {
    return ReadFields(outer, [this, payload](const Field& field) {
      switch (field.number) {
        case kKeyKind:
          return reader_.ReadCount(field, &payload->kind);
        case kKeyStep:
          return reader_.ReadCount(field, &payload->step);
        case kShard:
          return reader_.ReadCount(field, &payload->shard);
        case kVariant:
          return reader_.ReadFixed64(field, &payload->variant);
        default:
          return reader_.Skip(field.type);
      }
    });
  }

  absl::Status ReadBody(const Field& field, std::optional<FrameRange>& body) {
    PACELINE_RETURN_IF_ERROR(WireReader::Want(field, WireType::kBytes));
    if (body.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("field ", field.number, " more than once"));
    }
    PACELINE_ASSIGN_OR_RETURN(body.emplace().bytes, reader_.ReadLength());
    body->offset = reader_.position();
    return reader_.Advance(body->bytes);
  }

  absl::Status CheckWhole() {
    const auto bytes_of = [](const std::optional<FrameRange>& body) {
      return body.has_value() ? body->bytes : 0;
    };
    const int64_t message_bytes = bytes_of(layout_.message);
    if (total_bytes_ - message_bytes - bytes_of(layout_.data) >
        kMaxRoundHeaderBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a header of more than ", kMaxRoundHeaderBytes, " bytes"));
    }
    if (layout_.header.job == 0) {
      return absl::InvalidArgumentError("a frame of no job");
    }
    if (layout_.header.payload.has_value()) {
      layout_.header.payload->bytes = payload_.bytes;
      layout_.header.payload->chunk_bytes = payload_.chunk_bytes;
      const uint8_t kind = layout_.header.payload->kind;
      if (kind < 1 || kind > kMostKeyKind) {
        return WireReader::OutOfRange({kRoundPayload, WireType::kBytes}, kind);
      }
      if (payload_.bytes > kMaxPayloadBytes) {
        return WireReader::OutOfRange({kRoundPayloadBytes, WireType::kVarint},
                                      static_cast<uint64_t>(payload_.bytes));
      }
      if (payload_.chunk_bytes < 1 ||
          payload_.chunk_bytes > kMaxRoundDataBytes) {
        return WireReader::OutOfRange(
            {kRoundChunkBytes, WireType::kVarint},
            static_cast<uint64_t>(payload_.chunk_bytes));
      }
    }
    if (message_bytes > kMaxRoundMessageBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a message of ", message_bytes, " bytes, at most ",
                       kMaxRoundMessageBytes, " may be"));
    }
    return layout_.data.has_value() ? CheckChunk() : absl::OkStatus();
  }

  absl::Status CheckChunk() {
    if (!layout_.header.payload.has_value()) {
      return absl::InvalidArgumentError("a chunk of no payload");
    }
    const int64_t begin = layout_.header.chunk * payload_.chunk_bytes;
    const int64_t wanted =
        std::min(payload_.chunk_bytes, payload_.bytes - begin);
    const int64_t bytes = layout_.data->bytes;
    if (wanted <= 0 || bytes != wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk ", layout_.header.chunk, " of ", payload_.bytes,
                       " bytes with ", bytes, " bytes, need ",
                       std::max<int64_t>(wanted, 0)));
    }
    return absl::OkStatus();
  }

  const int64_t total_bytes_;
  WireReader reader_;
  RoundFrameLayout layout_;
  RoundPayloadHeader payload_;  // its bytes, which may come before the key
};

}  // namespace

std::string EncodeRoundHello(const RoundFrameHeader& header) {
  std::string out;
  AppendIntField(&out, kRoundJob, header.job);
  AppendIntField(&out, kRoundAttempt, header.attempt);
  AppendIntField(&out, kRoundPlanVersion, header.plan_version);
  AppendBytesField(&out, kRoundFrom, ProcessBody(header.from));
  AppendBytesField(&out, kRoundTo, ProcessBody(header.to));
  if (header.payload.has_value()) {
    AppendBytesField(&out, kRoundPayload, KeyBody(*header.payload));
    AppendIntField(&out, kRoundPayloadBytes, header.payload->bytes);
    AppendIntField(&out, kRoundChunkBytes, header.payload->chunk_bytes);
  }
  return out;
}

std::string EncodeRoundMessage(const RoundFrameHeader& header,
                               absl::string_view message) {
  std::string out = EncodeRoundHello(header);
  AppendBytesField(&out, kRoundMessage, std::string(message));
  return out;
}

std::string EncodeRoundChunkPrefix(const RoundFrameHeader& header,
                                   int64_t bytes, absl::string_view message) {
  std::string out = message.empty() ? EncodeRoundHello(header)
                                    : EncodeRoundMessage(header, message);
  AppendIntField(&out, kRoundChunk, header.chunk);
  AppendFixed64Field(&out, kRoundChecksum, header.checksum);
  AppendLength(&out, kRoundData, bytes);
  return out;
}

absl::StatusOr<RoundFrameLayout> ParseRoundFrame(ByteSpans slices) {
  return RoundFrameParser(slices).Parse();
}

}  // namespace paceline
