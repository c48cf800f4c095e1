// XXH3-64 over scattered memory.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace paceline {

// Thread-compatible.
class Checksum {
 public:
  Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void Update(absl::Span<const uint8_t> bytes);
  uint64_t Digest() const;
  void Reset();

 private:
  // XXH3_state_t, whose header stays out of here.
  alignas(64) unsigned char state_[576];
};

// The digest of one piece of memory.
uint64_t HashBytes(absl::Span<const uint8_t> bytes);

}  // namespace paceline
