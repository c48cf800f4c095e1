#include "core/transfer/frame_codec.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

// --- The fields -------------------------------------------------------------

// Where a field's value is.  uint64_t is fixed64 on the wire; the other numbers
// are varints, and counts are never negative.
using Slot =
    std::variant<int64_t*, int32_t*, uint64_t*, bool*, FrameKind*, BatchPhase*,
                 DType*, Codec*, PayloadKey::Kind*, Shape*, MemberId*,
                 std::optional<PayloadKey>*, std::vector<TensorMeta>*>;

// The field's number in StageFrame and in RoundFrame; 0: it is not there.
template <typename Message>
struct Row {
  uint32_t stage;
  uint32_t round;
  Slot (*slot)(Message&);
};

enum class Format : uint8_t { kStage, kRound };

template <typename Message>
uint32_t NumberOf(const Row<Message>& row, Format format) {
  return format == Format::kStage ? row.stage : row.round;
}

using Header = FrameHeader;

// They are written in this order.
constexpr Row<Header> kHeaderRows[] = {
    {1, 1, [](Header& h) -> Slot { return &h.fence.job.value; }},
    {2, 2, [](Header& h) -> Slot { return &h.fence.attempt; }},
    {3, 13, [](Header& h) -> Slot { return &h.fence.plan_version; }},
    {4, 0, [](Header& h) -> Slot { return &h.kind; }},
    {5, 0, [](Header& h) -> Slot { return &h.boundary; }},
    {6, 0, [](Header& h) -> Slot { return &h.sequence; }},
    {7, 0, [](Header& h) -> Slot { return &h.batch.ordinal; }},
    {8, 0, [](Header& h) -> Slot { return &h.batch.phase; }},
    {9, 0, [](Header& h) -> Slot { return &h.batch.step; }},
    {10, 0, [](Header& h) -> Slot { return &h.micro_batch; }},
    {11, 0, [](Header& h) -> Slot { return &h.batch.micro_batches; }},
    {12, 0, [](Header& h) -> Slot { return &h.batch.samples; }},
    {13, 0, [](Header& h) -> Slot { return &h.batch.final_batch; }},
    {14, 0, [](Header& h) -> Slot { return &h.route; }},
    {18, 0, [](Header& h) -> Slot { return &h.batch.drains; }},
    {19, 0, [](Header& h) -> Slot { return &h.batch.total_micro_batches; }},
    {20, 0, [](Header& h) -> Slot { return &h.admitted_us; }},
    {21, 0, [](Header& h) -> Slot { return &h.sent_us; }},
    {22, 0, [](Header& h) -> Slot { return &h.batch.first_update; }},
    {23, 0, [](Header& h) -> Slot { return &h.batch.marked; }},
    {24, 0, [](Header& h) -> Slot { return &h.batch.stops; }},
    {15, 0, [](Header& h) -> Slot { return &h.tensors; }},
    {0, 3, [](Header& h) -> Slot { return &h.from; }},
    {0, 4, [](Header& h) -> Slot { return &h.to; }},
    {0, 6, [](Header& h) -> Slot { return &h.payload; }},
    {0, 7, [](Header& h) -> Slot { return &h.payload_bytes; }},
    {0, 14, [](Header& h) -> Slot { return &h.chunk_bytes; }},
    {0, 8, [](Header& h) -> Slot { return &h.chunk; }},
};
constexpr Row<TensorMeta> kTensorRows[] = {
    {1, 0, [](TensorMeta& t) -> Slot { return &t.dtype; }},
    {2, 0, [](TensorMeta& t) -> Slot { return &t.shape; }},
    {3, 0, [](TensorMeta& t) -> Slot { return &t.codec; }},
};
constexpr Row<MemberId> kMemberRows[] = {
    {0, 1, [](MemberId& m) -> Slot { return &m.worker.value; }},
    {0, 2, [](MemberId& m) -> Slot { return &m.incarnation.value; }},
};
constexpr Row<PayloadKey> kKeyRows[] = {
    {0, 1, [](PayloadKey& k) -> Slot { return &k.kind; }},
    {0, 2, [](PayloadKey& k) -> Slot { return &k.step; }},
    {0, 3, [](PayloadKey& k) -> Slot { return &k.shard; }},
    {0, 4, [](PayloadKey& k) -> Slot { return &k.variant; }},
};
// The fields that follow the header.
enum Body : uint32_t {
  kStageChecksum = 16,
  kStagePayload = 17,
  kRoundMessage = 5,
  kRoundChecksum = 9,
  kRoundData = 15,
};

uint64_t MostOf(FrameKind) { return static_cast<int>(FrameKind::kReplica); }
uint64_t MostOf(BatchPhase) { return static_cast<int>(BatchPhase::kEvaluate); }
uint64_t MostOf(DType) { return kDTypes - 1; }
uint64_t MostOf(Codec) { return static_cast<int>(Codec::kInt8); }
uint64_t MostOf(PayloadKey::Kind) {
  return static_cast<int>(PayloadKey::Kind::kResult);
}

constexpr uint64_t kAnyNumber = std::numeric_limits<uint64_t>::max();
constexpr int64_t kMaxTotalBytes = int64_t{1} << 40;

// --- Writing ----------------------------------------------------------------

class HeaderWriter {
 public:
  HeaderWriter(Format format, std::string* out) : format_(format), out_(out) {}

  template <typename Message, size_t n>
  void Append(const Row<Message> (&rows)[n], Message& message) {
    for (const Row<Message>& row : rows) {
      const uint32_t number = NumberOf(row, format_);
      if (number == 0) continue;
      std::visit([&](auto* value) { Write(number, *value); },
                 row.slot(message));
    }
  }

 private:
  template <typename Number>
  void Write(uint32_t number, Number value) {
    AppendIntField(out_, number, static_cast<int64_t>(value));
  }
  void Write(uint32_t number, uint64_t value) {
    AppendFixed64Field(out_, number, value);
  }
  void Write(uint32_t number, const Shape& shape) {
    if (shape.empty()) return;
    std::string body;
    for (const int64_t size : shape) AppendVarint(&body, size);
    AppendBytesField(out_, number, body);
  }
  void Write(uint32_t number, MemberId& member) {
    WriteMessage(number, kMemberRows, member);
  }
  void Write(uint32_t number, std::optional<PayloadKey>& key) {
    if (key.has_value()) WriteMessage(number, kKeyRows, *key);
  }
  void Write(uint32_t number, std::vector<TensorMeta>& tensors) {
    for (TensorMeta& each : tensors) WriteMessage(number, kTensorRows, each);
  }
  template <typename Message, size_t n>
  void WriteMessage(uint32_t number, const Row<Message> (&rows)[n],
                    Message& message) {
    std::string body;
    HeaderWriter(format_, &body).Append(rows, message);
    AppendBytesField(out_, number, body);
  }

  const Format format_;
  std::string* const out_;
};

// The fields that a hello has.
FrameHeader HelloOf(const FrameHeader& full) {
  FrameHeader header;
  header.fence = full.fence;
  header.kind = full.kind;
  header.boundary = full.boundary;
  header.route = full.route;
  header.batch.phase = BatchPhase{};
  header.batch.micro_batches = 0;
  return header;
}

// --- Reading ----------------------------------------------------------------

class FrameParser {
 public:
  // total_bytes: of the frame; if not known, the most it may have.
  FrameParser(Format format, ByteSpans slices, int64_t total_bytes,
              bool total_is_known = true)
      : format_(format),
        total_bytes_(total_bytes),
        total_is_known_(total_is_known),
        reader_(slices, format == Format::kStage
                            ? std::min(total_bytes, kMaxHeaderBytes)
                            : total_bytes) {
    // proto3's defaults of absent fields, where ours differ.
    layout_.header.fence.job.value = 0;
  }

  // Reads the header's fields, in any order, then the checksum and where the
  // payload lies.
  absl::StatusOr<FrameLayout> ParseStage() {
    layout_.header.kind = FrameKind{};
    layout_.header.batch.phase = BatchPhase{};
    layout_.header.batch.micro_batches = 0;
    layout_.header.tensors.reserve(3);
    for (;;) {
      layout_.header_bytes = reader_.position();
      if (reader_.done()) {
        return InvalidArgument("no checksum in the first ", reader_.position(),
                               " bytes");
      }
      PACELINE_ASSIGN_OR_RETURN(const Field field, reader_.ReadField());
      if (field.number == kStagePayload) {
        return InvalidArgument("payload without checksum before it");
      }
      if (field.number == kStageChecksum) {
        PACELINE_RETURN_IF_ERROR(ReadTail(field));
        PACELINE_RETURN_IF_ERROR(CheckStage());
        return std::move(layout_);
      }
      PACELINE_RETURN_IF_ERROR(ReadRow(field, kHeaderRows, layout_.header));
    }
  }

  absl::StatusOr<FrameLayout> ParseRound() {
    layout_.header.from.worker.value = 0;
    layout_.header.to.worker.value = 0;
    while (!reader_.done()) {
      PACELINE_ASSIGN_OR_RETURN(const Field field, reader_.ReadField());
      PACELINE_RETURN_IF_ERROR(ReadOfRound(field));
    }
    PACELINE_RETURN_IF_ERROR(CheckRound());
    return std::move(layout_);
  }

 private:
  using Field = WireReader::Field;

  // Reads the field into the message; skips one that has no row.
  template <typename Message, size_t n>
  absl::Status ReadRow(const Field& field, const Row<Message> (&rows)[n],
                       Message& message) {
    for (const Row<Message>& row : rows) {
      if (NumberOf(row, format_) != field.number) continue;
      return std::visit([&](auto* value) { return Read(field, value); },
                        row.slot(message));
    }
    return reader_.Skip(field.type);
  }
  template <typename Message, size_t n>
  absl::Status ReadMessage(const Field& outer, const Row<Message> (&rows)[n],
                           Message& message) {
    return reader_.ReadInside(outer, [&]() -> absl::Status {
      PACELINE_ASSIGN_OR_RETURN(const Field field, reader_.ReadField());
      return ReadRow(field, rows, message);
    });
  }

  template <typename Value>
  absl::Status Read(const Field& field, Value* value) {
    if constexpr (std::is_enum_v<Value>) {
      return reader_.ReadInteger(field, 1, MostOf(*value), value);
    } else {
      return reader_.ReadCount(field, value);
    }
  }
  absl::Status Read(const Field& field, uint64_t* value) {
    return reader_.ReadFixed64(field, value);
  }
  absl::Status Read(const Field& field, bool* value) {
    return reader_.ReadInteger(field, 0, kAnyNumber, value);
  }
  absl::Status Read(const Field& field, Shape* shape) {
    // Packed, or one by one: a protobuf parser must take both.
    if (field.type == WireType::kVarint) return ReadDimension(shape);
    return reader_.ReadInside(field, [&] { return ReadDimension(shape); });
  }
  absl::Status Read(const Field& field, MemberId* member) {
    return ReadMessage(field, kMemberRows, *member);
  }
  absl::Status Read(const Field& field, std::optional<PayloadKey>* key) {
    key->emplace().kind = PayloadKey::Kind{};
    return ReadMessage(field, kKeyRows, **key);
  }
  absl::Status Read(const Field& field, std::vector<TensorMeta>* tensors) {
    if (tensors->size() == kMaxFrameTensors) {
      return InvalidArgument("more than ", kMaxFrameTensors, " tensors");
    }
    TensorMeta tensor;
    tensor.codec = Codec{};
    tensor.shape.reserve(4);
    PACELINE_RETURN_IF_ERROR(ReadMessage(field, kTensorRows, tensor));
    PACELINE_RETURN_IF_ERROR(CountTensor(tensor));
    tensors->push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status ReadDimension(Shape* shape) {
    PACELINE_ASSIGN_OR_RETURN(const uint64_t size, reader_.ReadVarint());
    if (shape->size() == kMaxTensorDims) {
      return InvalidArgument("a tensor of more than ", kMaxTensorDims,
                             " dimensions");
    }
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return InvalidArgument("a dimension is negative");
    }
    shape->push_back(static_cast<int64_t>(size));
    return absl::OkStatus();
  }

  // Its bytes, with those of the others, are no more than the message has.
  absl::Status CountTensor(const TensorMeta& tensor) {
    if (tensor.dtype == DType::kUnspecified || tensor.codec == Codec{}) {
      return InvalidArgument("a tensor without dtype or codec");
    }
    if (tensor.codec != Codec::kRaw && tensor.dtype != DType::kF32) {
      return InvalidArgument("codec ", CodecName(tensor.codec),
                             " for a tensor of ", DTypeName(tensor.dtype),
                             ", need F32");
    }
    const int64_t count = NumElements(tensor.shape);
    if (count < 0 || count > total_bytes_ || tensor.wire_bytes() < 0 ||
        tensor_bytes_ + tensor.wire_bytes() > total_bytes_) {
      return InvalidArgument(
          "tensors of more bytes than the whole message, which "
          "has ",
          total_bytes_);
    }
    tensor_bytes_ += tensor.wire_bytes();
    return absl::OkStatus();
  }

  absl::Status ReadTail(const Field& field) {
    PACELINE_RETURN_IF_ERROR(reader_.ReadFixed64(field, &layout_.checksum));
    layout_.payload.offset = reader_.position();
    if (reader_.position() == total_bytes_) return absl::OkStatus();

    PACELINE_ASSIGN_OR_RETURN(const Field payload, reader_.ReadField());
    if (payload.number != kStagePayload || payload.type != WireType::kBytes) {
      return InvalidArgument("field ", payload.number, " after the checksum");
    }
    // Not ReadLength(): the payload goes beyond the header's limit.
    PACELINE_ASSIGN_OR_RETURN(const uint64_t length, reader_.ReadVarint());
    const int64_t left = total_bytes_ - reader_.position();
    const bool fits = total_is_known_ ? length == static_cast<uint64_t>(left)
                                      : length <= static_cast<uint64_t>(left);
    if (!fits) {
      return InvalidArgument("a payload of ", length, " bytes, but ", left,
                             " are left");
    }
    layout_.payload = {reader_.position(), static_cast<int64_t>(length)};
    return absl::OkStatus();
  }

  absl::Status CheckStage() const {
    const FrameHeader& header = layout_.header;
    if (header.kind == FrameKind{}) return InvalidArgument("no kind");
    if (layout_.payload.bytes != tensor_bytes_) {
      return InvalidArgument("a payload of ", layout_.payload.bytes,
                             " bytes for tensors of ", tensor_bytes_);
    }
    const bool hello = header.kind == FrameKind::kHello;
    if (hello && !header.tensors.empty()) {
      return InvalidArgument("a hello with tensors");
    }
    if (!hello && header.batch.phase == BatchPhase{}) {
      return InvalidArgument("no phase");
    }
    return absl::OkStatus();
  }

  absl::Status ReadOfRound(const Field& field) {
    switch (field.number) {
      case kRoundMessage:
        return ReadBody(field, layout_.message);
      case kRoundData:
        return ReadBody(field, layout_.data);
      case kRoundChecksum:
        return reader_.ReadFixed64(field, &layout_.checksum);
      default:
        return ReadRow(field, kHeaderRows, layout_.header);
    }
  }

  absl::Status ReadBody(const Field& field, std::optional<FrameRange>& body) {
    PACELINE_RETURN_IF_ERROR(WireReader::Want(field, WireType::kBytes));
    if (body.has_value()) {
      return InvalidArgument("field ", field.number, " more than once");
    }
    PACELINE_ASSIGN_OR_RETURN(body.emplace().bytes, reader_.ReadLength());
    body->offset = reader_.position();
    return reader_.Advance(body->bytes);
  }

  absl::Status CheckRound() const {
    const int64_t message_bytes = layout_.message.value_or(FrameRange()).bytes;
    if (total_bytes_ - message_bytes -
            layout_.data.value_or(FrameRange()).bytes >
        kMaxRoundHeaderBytes) {
      return InvalidArgument("a header of more than ", kMaxRoundHeaderBytes,
                             " bytes");
    }
    if (layout_.header.fence.job.value == 0) {
      return InvalidArgument("a frame of no job");
    }
    if (message_bytes > kMaxRoundMessageBytes) {
      return InvalidArgument("a message of ", message_bytes, " bytes, at most ",
                             kMaxRoundMessageBytes, " may be");
    }
    return CheckPayload();
  }

  absl::Status CheckPayload() const {
    const FrameHeader& header = layout_.header;
    if (!header.payload.has_value()) {
      return layout_.data.has_value() ? InvalidArgument("a chunk of no payload")
                                      : absl::OkStatus();
    }
    if (header.payload->kind == PayloadKey::Kind{}) {
      return InvalidArgument("a payload of no kind");
    }
    if (header.payload_bytes > kMaxTotalBytes || header.chunk_bytes < 1 ||
        header.chunk_bytes > kMaxRoundDataBytes) {
      return InvalidArgument("a payload of ", header.payload_bytes,
                             " bytes in chunks of ", header.chunk_bytes);
    }
    if (!layout_.data.has_value()) return absl::OkStatus();
    const int64_t wanted =
        std::min(header.chunk_bytes,
                 header.payload_bytes - header.chunk * header.chunk_bytes);
    if (wanted <= 0 || layout_.data->bytes != wanted) {
      return InvalidArgument(
          "chunk ", header.chunk, " of ", header.payload_bytes, " bytes with ",
          layout_.data->bytes, " bytes, need ", std::max<int64_t>(wanted, 0));
    }
    return absl::OkStatus();
  }

  const Format format_;
  const int64_t total_bytes_;
  const bool total_is_known_;
  WireReader reader_;
  FrameLayout layout_;
  int64_t tensor_bytes_ = 0;
};

ByteSpan BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

EncodedFrame EncodeFrame(Frame frame, Codec codec) {
  EncodedFrame encoded;
  encoded.tensors.reserve(frame.tensors.size());
  frame.header.tensors.clear();
  frame.header.tensors.reserve(frame.tensors.size());
  for (Tensor& tensor : frame.tensors) {
    const Codec own = tensor.dtype == DType::kF32 ? codec : Codec::kRaw;
    encoded.tensors.push_back(Encode(own, tensor));
    encoded.payload_bytes += encoded.tensors.back().bytes();
    frame.header.tensors.push_back(
        {tensor.dtype, std::move(tensor.shape), own});
  }
  if (frame.header.kind == FrameKind::kHello) {
    frame.header = HelloOf(frame.header);
  }
  encoded.prefix.reserve(128);
  HeaderWriter(Format::kStage, &encoded.prefix)
      .Append(kHeaderRows, frame.header);

  Checksum checksum;
  checksum.Update(BytesOf(encoded.prefix));
  for (const Tensor& tensor : encoded.tensors) {
    checksum.Update({tensor.data.get(), static_cast<size_t>(tensor.bytes())});
  }
  AppendTag(&encoded.prefix, kStageChecksum, WireType::kFixed64);
  AppendFixed64(&encoded.prefix, checksum.Digest());
  if (encoded.payload_bytes > 0) {
    AppendLength(&encoded.prefix, kStagePayload, encoded.payload_bytes);
  }
  return encoded;
}

std::string EncodeRoundHello(const FrameHeader& header) {
  FrameHeader written = header;
  if (!header.payload.has_value()) {
    written.payload_bytes = written.chunk_bytes = 0;
  }
  std::string out;
  HeaderWriter(Format::kRound, &out).Append(kHeaderRows, written);
  return out;
}

std::string EncodeRoundMessage(const FrameHeader& header,
                               absl::string_view message) {
  std::string out = EncodeRoundHello(header);
  AppendBytesField(&out, kRoundMessage, message);
  return out;
}

std::string EncodeRoundChunkPrefix(const FrameHeader& header, int64_t bytes,
                                   uint64_t checksum,
                                   absl::string_view message) {
  std::string out = message.empty() ? EncodeRoundHello(header)
                                    : EncodeRoundMessage(header, message);
  AppendFixed64Field(&out, kRoundChecksum, checksum);
  AppendLength(&out, kRoundData, bytes);
  return out;
}

absl::StatusOr<FrameLayout> ParseFrame(ByteSpans slices) {
  const int64_t total_bytes = TotalBytes(slices);
  if (total_bytes > kMaxTotalBytes) {
    return InvalidArgument("a message of ", total_bytes, " bytes");
  }
  return FrameParser(Format::kStage, slices, total_bytes).ParseStage();
}

absl::StatusOr<FrameLayout> ParseFirstChunk(ByteSpans slices) {
  return FrameParser(Format::kStage, slices, kMaxTotalBytes,
                     /*total_is_known=*/false)
      .ParseStage();
}

absl::StatusOr<FrameLayout> ParseRoundFrame(ByteSpans slices) {
  constexpr int64_t kMost =
      kMaxRoundHeaderBytes + kMaxRoundMessageBytes + kMaxRoundDataBytes;
  const int64_t total_bytes = TotalBytes(slices);
  if (total_bytes > kMost) {
    return InvalidArgument("a frame of ", total_bytes, " bytes, at most ",
                           kMost, " may be");
  }
  return FrameParser(Format::kRound, slices, total_bytes).ParseRound();
}

absl::StatusOr<TensorList> ReadPayload(
    ByteSpans slices, const FrameLayout& layout,
    absl::FunctionRef<Tensor(DType, Shape)> allocate) {
  Checksum checksum;
  ForEachSpan(slices, 0, layout.header_bytes,
              [&](ByteSpan span) { checksum.Update(span); });
  int64_t offset = layout.payload.offset;

  TensorList tensors;
  tensors.reserve(layout.header.tensors.size());
  for (const TensorMeta& meta : layout.header.tensors) {
    Tensor& tensor = tensors.emplace_back(allocate(meta.dtype, meta.shape));
    const int64_t wire_bytes = meta.wire_bytes();
    const bool raw = meta.codec == Codec::kRaw;
    const Tensor wire = raw ? tensor : allocate(DType::kU8, Shape{wire_bytes});
    uint8_t* out = wire.data.get();
    ForEachSpan(slices, offset, wire_bytes, [&](ByteSpan span) {
      checksum.Update(span);
      std::memcpy(out, span.data(), span.size());
      out += span.size();
    });
    offset += wire_bytes;
    if (!raw) Decode(meta.codec, wire.As<uint8_t>(), tensor);
  }
  if (checksum.Digest() != layout.checksum) {
    return DataLoss("checksum of a frame of ", layout.payload.bytes,
                    " bytes is ", absl::Hex(checksum.Digest()),
                    ", its header says ", absl::Hex(layout.checksum));
  }
  return tensors;
}

}  // namespace paceline
