#include "core/transfer/checksum.h"

// For the state's size: it is on the stack, not on the heap.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
// The same digest by the widest vectors of this very CPU; the library's plain
// functions are built for the oldest.
#include <xxh_x86dispatch.h>
#endif

namespace paceline {
namespace {

XXH3_state_t* StateIn(unsigned char* memory) {
  return reinterpret_cast<XXH3_state_t*>(memory);
}

}  // namespace

Checksum::Checksum() {
  static_assert(sizeof(state_) == sizeof(XXH3_state_t));
  static_assert(alignof(XXH3_state_t) <= 64);
  XXH3_INITSTATE(StateIn(state_));
  Reset();
}

void Checksum::Update(absl::Span<const uint8_t> bytes) {
  if (!bytes.empty()) {
    XXH3_64bits_update(StateIn(state_), bytes.data(), bytes.size());
  }
}

uint64_t Checksum::Digest() const {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_));
}

void Checksum::Reset() { XXH3_64bits_reset(StateIn(state_)); }

uint64_t HashBytes(absl::Span<const uint8_t> bytes) {
  Checksum checksum;
  checksum.Update(bytes);
  return checksum.Digest();
}

}  // namespace paceline
