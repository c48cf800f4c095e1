#include "core/transfer/checksum.h"

#include <xxhash.h>

#include <new>

#include "core/base/check.h"

namespace paceline {

// The state wants an alignment that only its own functions know.
struct Checksum::State {
  XXH3_state_t* xxh;
};

Checksum::Checksum() : state_(new State{XXH3_createState()}) {
  PACELINE_CHECK(state_->xxh != nullptr, "out of memory");
  Reset();
}

Checksum::~Checksum() { XXH3_freeState(state_->xxh); }

void Checksum::Update(absl::Span<const uint8_t> bytes) {
  if (!bytes.empty()) {
    XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
  }
}

uint64_t Checksum::Digest() const { return XXH3_64bits_digest(state_->xxh); }

void Checksum::Reset() { XXH3_64bits_reset(state_->xxh); }

uint64_t Checksum64(absl::Span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace paceline
