#include "core/transfer/frame_codec.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

// Fields of StageFrame and TensorHeader.
enum FrameField : uint32_t {
  kJob = 1,
  kAttempt = 2,
  kPlanVersion = 3,
  kKind = 4,
  kBoundary = 5,
  kSequence = 6,
  kBatch = 7,
  kPhase = 8,
  kStep = 9,
  kMicroBatch = 10,
  kMicroBatches = 11,
  kSamples = 12,
  kFinalBatch = 13,
  kRoute = 14,
  kTensors = 15,
  kChecksum = 16,
  kPayload = 17,
  kDrains = 18,
  kTotalMicroBatches = 19,
  kAdmitted = 20,
  kSent = 21,
  kFirstUpdate = 22,
  kMarked = 23,
  kStops = 24,
};
enum TensorField : uint32_t { kDType = 1, kShape = 2, kCodec = 3 };

constexpr auto kMostKind = static_cast<uint64_t>(FrameKind::kReplica);
constexpr auto kMostCodec = static_cast<uint64_t>(Codec::kInt8);
constexpr uint64_t kAnyNumber = std::numeric_limits<uint64_t>::max();
constexpr int64_t kMaxTotalBytes = int64_t{1} << 40;

ByteSpan BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Codec CodecFor(const Tensor& tensor, Codec codec) {
  return tensor.dtype == DType::kF32 ? codec : Codec::kRaw;
}

void AppendTensor(std::string* out, const Tensor& tensor, Codec codec) {
  std::string shape;
  for (const int64_t size : tensor.shape) AppendVarint(&shape, size);
  std::string body;
  AppendIntField(&body, kDType, static_cast<int64_t>(tensor.dtype));
  if (!shape.empty()) AppendBytesField(&body, kShape, shape);
  AppendIntField(&body, kCodec, static_cast<int64_t>(CodecFor(tensor, codec)));
  AppendBytesField(out, kTensors, body);
}

void AppendHeader(std::string* out, const FrameHeader& header,
                  const TensorList& tensors, Codec codec) {
  const bool hello = header.kind == FrameKind::kHello;
  AppendIntField(out, kJob, header.fence.job.value);
  AppendIntField(out, kAttempt, header.fence.attempt);
  AppendIntField(out, kPlanVersion, header.fence.plan_version);
  AppendIntField(out, kKind, static_cast<int64_t>(header.kind));
  AppendIntField(out, kBoundary, header.boundary);
  if (hello) {  // the rest says nothing
    AppendIntField(out, kRoute, header.route);
    return;
  }
  AppendIntField(out, kSequence, header.sequence);
  AppendIntField(out, kBatch, header.batch.ordinal);
  AppendIntField(out, kPhase, static_cast<int64_t>(header.batch.phase));
  AppendIntField(out, kStep, header.batch.step);
  AppendIntField(out, kMicroBatch, header.micro_batch);
  AppendIntField(out, kMicroBatches, header.batch.micro_batches);
  AppendIntField(out, kSamples, header.batch.samples);
  AppendIntField(out, kFinalBatch, header.batch.final_batch);
  AppendIntField(out, kRoute, header.route);
  AppendIntField(out, kDrains, header.batch.drains);
  AppendIntField(out, kTotalMicroBatches, header.batch.total_micro_batches);
  AppendIntField(out, kAdmitted, header.admitted_us);
  AppendIntField(out, kSent, header.sent_us);
  AppendIntField(out, kFirstUpdate, header.batch.first_update);
  AppendIntField(out, kMarked, header.batch.marked);
  AppendIntField(out, kStops, header.batch.stops);
  for (const Tensor& tensor : tensors) AppendTensor(out, tensor, codec);
}

// Reads the header's fields, in any order, then the checksum and where the
// payload lies.
class FrameParser {
 public:
  // total_bytes: of the frame; not known: at most so many.
  FrameParser(ByteSpans slices, int64_t total_bytes, bool total_is_known)
      : total_bytes_(total_bytes),
        total_is_known_(total_is_known),
        reader_(slices, std::min(total_bytes, kMaxHeaderBytes)) {
    // proto3's defaults of absent fields, where ours differ.
    layout_.header.fence.job.value = 0;
    layout_.header.batch.micro_batches = 0;
    layout_.header.tensors.reserve(3);
  }

  absl::StatusOr<FrameLayout> Parse() {
    for (;;) {
      layout_.header_bytes = reader_.position();
      if (reader_.done()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "no checksum in the first ", reader_.position(), " bytes"));
      }
      PACELINE_ASSIGN_OR_RETURN(const WireReader::Field field,
                                reader_.ReadField());
      if (field.number == kChecksum) {
        PACELINE_RETURN_IF_ERROR(ReadTail(field));
        PACELINE_RETURN_IF_ERROR(CheckWhole());
        return std::move(layout_);
      }
      PACELINE_RETURN_IF_ERROR(ReadHeaderField(field));
    }
  }

 private:
  using Field = WireReader::Field;

  absl::Status ReadHeaderField(const Field& field) {
    FrameHeader& header = layout_.header;
    switch (field.number) {
      case kJob:
        return reader_.ReadCount(field, &header.fence.job.value);
      case kAttempt:
        return reader_.ReadCount(field, &header.fence.attempt);
      case kPlanVersion:
        return reader_.ReadCount(field, &header.fence.plan_version);
      case kKind:
        kind_seen_ = true;
        return reader_.ReadInteger(field, 1, kMostKind, &header.kind);
      case kBoundary:
        return reader_.ReadCount(field, &header.boundary);
      case kSequence:
        return reader_.ReadCount(field, &header.sequence);
      case kBatch:
        return reader_.ReadCount(field, &header.batch.ordinal);
      case kPhase:
        phase_seen_ = true;
        return reader_.ReadInteger(field, 1, 2, &header.batch.phase);
      case kStep:
        return reader_.ReadCount(field, &header.batch.step);
      case kMicroBatch:
        return reader_.ReadCount(field, &header.micro_batch);
      case kMicroBatches:
        return reader_.ReadCount(field, &header.batch.micro_batches);
      case kSamples:
        return reader_.ReadCount(field, &header.batch.samples);
      case kFinalBatch:
        return reader_.ReadInteger(field, 0, kAnyNumber,
                                   &header.batch.final_batch);
      case kRoute:
        return reader_.ReadCount(field, &header.route);
      case kTensors:
        return ReadTensor(field);
      case kPayload:
        return absl::InvalidArgumentError("payload without checksum before it");
      case kDrains:
        return reader_.ReadInteger(field, 0, kAnyNumber, &header.batch.drains);
      case kTotalMicroBatches:
        return reader_.ReadCount(field, &header.batch.total_micro_batches);
      case kAdmitted:
        return reader_.ReadCount(field, &header.admitted_us);
      case kSent:
        return reader_.ReadCount(field, &header.sent_us);
      case kFirstUpdate:
        return reader_.ReadCount(field, &header.batch.first_update);
      case kMarked:
        return reader_.ReadInteger(field, 0, kAnyNumber, &header.batch.marked);
      case kStops:
        return reader_.ReadInteger(field, 0, kAnyNumber, &header.batch.stops);
      default:
        return reader_.Skip(field.type);
    }
  }

  absl::Status ReadTensor(const Field& outer) {
    if (layout_.header.tensors.size() == kMaxFrameTensors) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxFrameTensors, " tensors"));
    }
    TensorMeta tensor;
    tensor.shape.reserve(4);
    uint64_t codec = 0;
    PACELINE_RETURN_IF_ERROR(reader_.ReadInside(outer, [&]() -> absl::Status {
      PACELINE_ASSIGN_OR_RETURN(const Field field, reader_.ReadField());
      return ReadTensorField(field, &tensor, &codec);
    }));
    if (codec < 1 || codec > kMostCodec) {
      return absl::InvalidArgumentError(
          absl::StrCat("codec ", codec, " is not known"));
    }
    tensor.codec = static_cast<Codec>(codec);
    return AddTensor(std::move(tensor));
  }

  absl::Status ReadTensorField(const Field& field, TensorMeta* tensor,
                               uint64_t* codec) {
    switch (field.number) {
      case kDType:
        return reader_.ReadInteger(field, 1, kDTypes - 1, &tensor->dtype);
      case kShape:
        // Packed, or one by one: a protobuf parser must take both.
        if (field.type == WireType::kVarint) return ReadDimension(tensor);
        return reader_.ReadInside(field, [&] { return ReadDimension(tensor); });
      case kCodec:
        return reader_.ReadInteger(field, 0, kAnyNumber, codec);
      default:
        return reader_.Skip(field.type);
    }
  }

  absl::Status ReadDimension(TensorMeta* tensor) {
    PACELINE_ASSIGN_OR_RETURN(const uint64_t size, reader_.ReadVarint());
    if (tensor->shape.size() == kMaxTensorDims) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a tensor of more than ", kMaxTensorDims, " dimensions"));
    }
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError("a dimension is negative");
    }
    tensor->shape.push_back(static_cast<int64_t>(size));
    return absl::OkStatus();
  }

  // Adds a tensor whose bytes, with those of the others, are no more than the
  // message has.
  absl::Status AddTensor(TensorMeta tensor) {
    if (tensor.dtype == DType::kUnspecified) {
      return absl::InvalidArgumentError("a tensor without dtype");
    }
    if (tensor.codec != Codec::kRaw && tensor.dtype != DType::kF32) {
      return absl::InvalidArgumentError(
          absl::StrCat("codec ", CodecName(tensor.codec), " for a tensor of ",
                       DTypeName(tensor.dtype), ", need F32"));
    }
    const int64_t count = NumElements(tensor.shape);
    if (count < 0 || count > total_bytes_ || tensor.wire_bytes() < 0 ||
        tensor_bytes_ + tensor.wire_bytes() > total_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors of more bytes than the whole message, which "
                       "has ",
                       total_bytes_));
    }
    tensor_bytes_ += tensor.wire_bytes();
    layout_.header.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status ReadTail(const WireReader::Field& field) {
    PACELINE_RETURN_IF_ERROR(reader_.ReadFixed64(field, &layout_.checksum));
    layout_.payload_offset = reader_.position();
    if (reader_.position() == total_bytes_) return absl::OkStatus();

    PACELINE_ASSIGN_OR_RETURN(const WireReader::Field payload,
                              reader_.ReadField());
    if (payload.number != kPayload || payload.type != WireType::kBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("field ", payload.number, " after the checksum"));
    }
    // Not ReadLength(): the payload goes beyond the header's limit.
    PACELINE_ASSIGN_OR_RETURN(const uint64_t length, reader_.ReadVarint());
    layout_.payload_offset = reader_.position();
    layout_.payload_bytes = total_bytes_ - reader_.position();
    if (!total_is_known_ &&
        length < static_cast<uint64_t>(layout_.payload_bytes)) {
      layout_.payload_bytes = static_cast<int64_t>(length);
    }
    if (length != static_cast<uint64_t>(layout_.payload_bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a payload of ", length, " bytes, but ",
                       layout_.payload_bytes, " are left"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckWhole() const {
    if (!kind_seen_) return absl::InvalidArgumentError("no kind");
    if (layout_.payload_bytes != tensor_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a payload of ", layout_.payload_bytes,
                       " bytes for tensors of ", tensor_bytes_));
    }
    const bool hello = layout_.header.kind == FrameKind::kHello;
    if (hello && !layout_.header.tensors.empty()) {
      return absl::InvalidArgumentError("a hello with tensors");
    }
    if (!hello && !phase_seen_) return absl::InvalidArgumentError("no phase");
    return absl::OkStatus();
  }

  const int64_t total_bytes_;
  const bool total_is_known_;
  WireReader reader_;
  FrameLayout layout_;
  int64_t tensor_bytes_ = 0;
  bool kind_seen_ = false;
  bool phase_seen_ = false;
};

}  // namespace

EncodedFrame EncodeFrame(Frame frame, Codec codec) {
  EncodedFrame encoded;
  encoded.prefix.reserve(128);
  AppendHeader(&encoded.prefix, frame.header, frame.tensors, codec);
  encoded.tensors.reserve(frame.tensors.size());
  for (const Tensor& tensor : frame.tensors) {
    encoded.tensors.push_back(Encode(CodecFor(tensor, codec), tensor));
    encoded.payload_bytes += encoded.tensors.back().bytes();
  }

  Checksum checksum;
  checksum.Update(BytesOf(encoded.prefix));
  for (const Tensor& tensor : encoded.tensors) {
    checksum.Update({tensor.data.get(), static_cast<size_t>(tensor.bytes())});
  }
  AppendTag(&encoded.prefix, kChecksum, WireType::kFixed64);
  AppendFixed64(&encoded.prefix, checksum.Digest());
  if (encoded.payload_bytes > 0) {
    AppendLength(&encoded.prefix, kPayload, encoded.payload_bytes);
  }
  return encoded;
}

absl::StatusOr<FrameLayout> ParseFrame(ByteSpans slices) {
  const int64_t total_bytes = TotalBytes(slices);
  if (total_bytes > kMaxTotalBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", total_bytes, " bytes"));
  }
  return FrameParser(slices, total_bytes, /*total_is_known=*/true).Parse();
}

absl::StatusOr<FrameLayout> ParseFirstPiece(ByteSpans slices) {
  return FrameParser(slices, kMaxTotalBytes, /*total_is_known=*/false).Parse();
}

absl::StatusOr<TensorList> ReadPayload(
    ByteSpans slices, const FrameLayout& layout,
    absl::FunctionRef<Tensor(DType, Shape)> allocate) {
  Checksum checksum;
  ForEachPiece(slices, 0, layout.header_bytes,
               [&](ByteSpan piece) { checksum.Update(piece); });
  int64_t offset = layout.payload_offset;

  TensorList tensors;
  tensors.reserve(layout.header.tensors.size());
  for (const TensorMeta& meta : layout.header.tensors) {
    Tensor& tensor = tensors.emplace_back(allocate(meta.dtype, meta.shape));
    const int64_t wire_bytes = meta.wire_bytes();
    const bool raw = meta.codec == Codec::kRaw;
    const Tensor wire = raw ? tensor : allocate(DType::kU8, Shape{wire_bytes});
    uint8_t* out = wire.data.get();
    ForEachPiece(slices, offset, wire_bytes, [&](ByteSpan piece) {
      checksum.Update(piece);
      std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    });
    offset += wire_bytes;
    if (!raw) Decode(meta.codec, wire.As<uint8_t>(), tensor);
  }
  if (checksum.Digest() != layout.checksum) {
    return absl::DataLossError(
        absl::StrCat("checksum of a frame of ", layout.payload_bytes,
                     " bytes is ", absl::Hex(checksum.Digest()),
                     ", its header says ", absl::Hex(layout.checksum)));
  }
  return tensors;
}

}  // namespace paceline
