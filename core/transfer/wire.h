// The protobuf wire format, as much of it as a frame's header needs.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paceline {

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

// Reads forward through memory in pieces.  Thread-compatible; the pieces
// outlive it.
class WireReader {
 public:
  // No more than `limit` bytes of `slices` are ever looked at.
  WireReader(absl::Span<const absl::Span<const uint8_t>> slices, int64_t limit);

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

 private:
  // False at the end.
  bool ReadByte(uint8_t* byte);
  absl::Status Truncated() const;

  absl::Span<const absl::Span<const uint8_t>> slices_;
  const int64_t limit_;
  int64_t position_ = 0;
  size_t slice_ = 0;
  size_t offset_ = 0;  // in slices_[slice_]
};

}  // namespace paceline
