#include "core/transfer/wire.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/transfer/checksum.h"

namespace paceline {

int64_t TotalBytes(ByteSpans slices) {
  int64_t bytes = 0;
  for (const ByteSpan slice : slices) bytes += std::ssize(slice);
  return bytes;
}

void ForEachSpan(ByteSpans slices, int64_t offset, int64_t bytes,
                 absl::FunctionRef<void(ByteSpan)> use) {
  for (ByteSpan slice : slices) {
    if (offset >= std::ssize(slice)) {
      offset -= std::ssize(slice);
      continue;
    }
    slice.remove_prefix(static_cast<size_t>(offset));
    offset = 0;
    slice = slice.first(std::min(slice.size(), static_cast<size_t>(bytes)));
    bytes -= std::ssize(slice);
    while (!slice.empty()) {
      const size_t here = std::min(slice.size(), kHashedBytes);
      use(slice.first(here));
      slice.remove_prefix(here);
    }
    if (bytes == 0) return;
  }
}

std::string CopyBytes(ByteSpans slices, int64_t offset, int64_t bytes) {
  std::string out;
  out.reserve(static_cast<size_t>(bytes));
  ForEachSpan(slices, offset, bytes, [&out](ByteSpan span) {
    out.append(reinterpret_cast<const char*>(span.data()), span.size());
  });
  return out;
}

uint64_t CopyAndHash(ByteSpans slices, int64_t offset,
                     absl::Span<uint8_t> target) {
  Checksum checksum;
  uint8_t* out = target.data();
  ForEachSpan(slices, offset, std::ssize(target), [&](ByteSpan span) {
    std::memcpy(out, span.data(), span.size());
    checksum.Update({out, span.size()});
    out += span.size();
  });
  return checksum.Digest();
}

// --- Writing ----------------------------------------------------------------

void AppendVarint(std::string* out, uint64_t value) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void AppendTag(std::string* out, int field, WireType type) {
  AppendVarint(out,
               static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}

void AppendIntField(std::string* out, int field, int64_t value) {
  if (value == 0) return;
  AppendTag(out, field, WireType::kVarint);
  AppendVarint(out, static_cast<uint64_t>(value));
}

void AppendFixed64(std::string* out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) {
    out->push_back(static_cast<char>(value >> shift));
  }
}

void AppendFixed64Field(std::string* out, int field, uint64_t value) {
  if (value == 0) return;
  AppendTag(out, field, WireType::kFixed64);
  AppendFixed64(out, value);
}

void AppendLength(std::string* out, int field, int64_t bytes) {
  AppendTag(out, field, WireType::kBytes);
  AppendVarint(out, static_cast<uint64_t>(bytes));
}

void AppendBytesField(std::string* out, int field, absl::string_view body) {
  AppendLength(out, field, std::ssize(body));
  out->append(body.data(), body.size());
}

// --- Reading ----------------------------------------------------------------

WireReader::WireReader(ByteSpans slices, int64_t limit)
    : slices_(slices), limit_(limit) {}

absl::StatusOr<WireReader::Field> WireReader::ReadField() {
  PACELINE_ASSIGN_OR_RETURN(const uint64_t tag, ReadVarint());
  const uint64_t number = tag >> 3;
  const auto type = static_cast<WireType>(tag & 7);
  if (number == 0 || number >= (1u << 29)) {
    return InvalidArgument("byte ", position_, ": field ", number,
                           " cannot be");
  }
  if (type != WireType::kVarint && type != WireType::kFixed64 &&
      type != WireType::kBytes && type != WireType::kFixed32) {
    return InvalidArgument("byte ", position_, ": field ", number,
                           " has wire type ", tag & 7);
  }
  return Field{static_cast<uint32_t>(number), type};
}

absl::StatusOr<uint64_t> WireReader::ReadVarint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint8_t byte;
    if (!ReadByte(&byte)) return Truncated();
    if (shift == 63 && byte > 1) break;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return InvalidArgument("byte ", position_, ": a number of more than 64 bits");
}

absl::StatusOr<uint64_t> WireReader::ReadFixed64() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 8) {
    uint8_t byte;
    if (!ReadByte(&byte)) return Truncated();
    value |= static_cast<uint64_t>(byte) << shift;
  }
  return value;
}

absl::StatusOr<int64_t> WireReader::ReadLength() {
  PACELINE_ASSIGN_OR_RETURN(const uint64_t length, ReadVarint());
  if (length > static_cast<uint64_t>(limit_ - position_)) {
    return InvalidArgument("byte ", position_, ": a length of ", length,
                           " bytes, but ", limit_ - position_, " are left");
  }
  return static_cast<int64_t>(length);
}

absl::Status WireReader::Skip(WireType type) {
  switch (type) {
    case WireType::kVarint:
      return ReadVarint().status();
    case WireType::kFixed64:
      return Advance(8);
    case WireType::kFixed32:
      return Advance(4);
    case WireType::kBytes:
      break;
  }
  PACELINE_ASSIGN_OR_RETURN(const int64_t length, ReadLength());
  return Advance(length);
}

bool WireReader::ReadByte(uint8_t* byte) {
  if (done()) return false;
  while (slice_ < slices_.size() && offset_ == slices_[slice_].size()) {
    ++slice_;
    offset_ = 0;
  }
  if (slice_ == slices_.size()) return false;
  ++position_;
  *byte = slices_[slice_][offset_++];
  return true;
}

absl::Status WireReader::Advance(int64_t bytes) {
  if (bytes > limit_ - position_) return Truncated();
  position_ += bytes;
  while (bytes > 0) {
    if (slice_ == slices_.size()) return Truncated();
    const int64_t here = std::min<int64_t>(
        bytes, static_cast<int64_t>(slices_[slice_].size() - offset_));
    offset_ += here;
    bytes -= here;
    if (bytes > 0) {
      ++slice_;
      offset_ = 0;
    }
  }
  return absl::OkStatus();
}

absl::Status WireReader::Want(const Field& field, WireType type) {
  if (field.type == type) return absl::OkStatus();
  return InvalidArgument("field ", field.number, " has wire type ",
                         static_cast<int>(field.type));
}

absl::Status WireReader::ReadBetween(const Field& field, uint64_t least,
                                     uint64_t most, uint64_t* out) {
  PACELINE_RETURN_IF_ERROR(Want(field, WireType::kVarint));
  PACELINE_ASSIGN_OR_RETURN(*out, ReadVarint());
  if (*out >= least && *out <= most) return absl::OkStatus();
  return InvalidArgument("field ", field.number, " cannot be ", *out);
}

absl::Status WireReader::ReadFixed64(const Field& field, uint64_t* out) {
  PACELINE_RETURN_IF_ERROR(Want(field, WireType::kFixed64));
  PACELINE_ASSIGN_OR_RETURN(*out, ReadFixed64());
  return absl::OkStatus();
}

absl::Status WireReader::ReadInside(const Field& field,
                                    absl::FunctionRef<absl::Status()> read) {
  PACELINE_RETURN_IF_ERROR(Want(field, WireType::kBytes));
  PACELINE_ASSIGN_OR_RETURN(const int64_t length, ReadLength());
  const int64_t end = position_ + length;
  while (position_ < end) PACELINE_RETURN_IF_ERROR(read());
  if (position_ == end) return absl::OkStatus();
  return InvalidArgument("field ", field.number, " runs over its end");
}

}  // namespace paceline
