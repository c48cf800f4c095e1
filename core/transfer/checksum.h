// XXH3-64 over scattered memory.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace paceline {

// Thread-compatible.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void Update(absl::Span<const uint8_t> bytes);
  uint64_t Digest() const;
  void Reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t Checksum64(absl::Span<const uint8_t> bytes);

}  // namespace paceline
