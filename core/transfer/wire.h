// The protobuf wire format, as much of it as the headers of frames need, and
// messages whose bytes lie scattered in memory.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/errors.h"

namespace paceline {

using ByteSpan = absl::Span<const uint8_t>;
// A message, scattered over spans of memory.
using ByteSpans = absl::Span<const ByteSpan>;

int64_t TotalBytes(ByteSpans slices);
// Calls `use` with the spans of [offset, offset + bytes), in order, each of at
// most kHashedBytes.
void ForEachSpan(ByteSpans slices, int64_t offset, int64_t bytes,
                 absl::FunctionRef<void(ByteSpan)> use);
// Small enough that what was copied is still in the first-level cache when it
// is hashed.
inline constexpr size_t kHashedBytes = 16 << 10;
// Copies [offset, offset + bytes).
std::string CopyBytes(ByteSpans slices, int64_t offset, int64_t bytes);
// Copies [offset, offset + target.size()) and gives its XXH3-64.
uint64_t CopyAndHash(ByteSpans slices, int64_t offset,
                     absl::Span<uint8_t> target);

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kFixed32 = 5,
};

void AppendVarint(std::string* out, uint64_t value);
void AppendTag(std::string* out, int field, WireType type);
// Nothing when the value is 0, as proto3 has it.
void AppendIntField(std::string* out, int field, int64_t value);
void AppendFixed64Field(std::string* out, int field, uint64_t value);
void AppendFixed64(std::string* out, uint64_t value);
// Appends the tag and the length that precede the `bytes` of a field.
void AppendLength(std::string* out, int field, int64_t bytes);
void AppendBytesField(std::string* out, int field, absl::string_view body);

// Reads forward through scattered memory.  Thread-compatible; the memory
// outlives it.
class WireReader {
 public:
  // No more than `limit` bytes of `slices` are ever looked at.
  WireReader(ByteSpans slices, int64_t limit);

  int64_t position() const { return position_; }
  bool done() const { return position_ >= limit_; }

  struct Field {
    uint32_t number = 0;
    WireType type = WireType::kVarint;
  };

  // Errors of all: InvalidArgument  the bytes end too early, a varint is longer
  // than 64 bits, a field number or wire type does not exist.
  absl::StatusOr<Field> ReadField();
  absl::StatusOr<uint64_t> ReadVarint();
  absl::StatusOr<uint64_t> ReadFixed64();
  // The length of a bytes field, which fits in what is left.
  absl::StatusOr<int64_t> ReadLength();
  absl::Status Skip(WireType type);
  absl::Status Advance(int64_t bytes);

  // The methods below read the value of `field`.  Errors: as above, and when
  // the field has another wire type or its value does not fit the type of
  // `out`.

  // Reads a count, which is never negative.
  template <typename T>
  absl::Status ReadCount(const Field& field, T* out) {
    return ReadInteger(field, 0, std::numeric_limits<T>::max(), out);
  }
  // An enum's number between `least` and `most`.
  template <typename T>
  absl::Status ReadInteger(const Field& field, uint64_t least, uint64_t most,
                           T* out) {
    uint64_t value = 0;
    PACELINE_RETURN_IF_ERROR(ReadBetween(field, least, most, &value));
    *out = static_cast<T>(value);
    return absl::OkStatus();
  }
  absl::Status ReadFixed64(const Field& field, uint64_t* out);
  // Calls `read` at each position up to the end of `field`.
  absl::Status ReadInside(const Field& field,
                          absl::FunctionRef<absl::Status()> read);

  static absl::Status Want(const Field& field, WireType type);

 private:
  absl::Status ReadBetween(const Field& field, uint64_t least, uint64_t most,
                           uint64_t* out);
  // False at the end.
  bool ReadByte(uint8_t* byte);
  absl::Status Truncated() const {
    return InvalidArgument("the bytes end at ", position_, ", inside a field");
  }

  ByteSpans slices_;
  const int64_t limit_;
  int64_t position_ = 0;
  size_t slice_ = 0;
  size_t offset_ = 0;  // in slices_[slice_]
};

}  // namespace paceline
