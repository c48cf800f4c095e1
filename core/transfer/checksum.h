// XXH3-64 over scattered memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// The digest of one span of memory.
uint64_t HashBytes(absl::Span<const uint8_t> bytes);

// The digest of all bytes of a file.
// Errors: NotFound, PermissionDenied  as the system says
absl::StatusOr<uint64_t> HashFile(const std::string& path);

// SHA-256 (FIPS 180-4) of bytes that come in parts; it names a weights file.

// Thread-compatible.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(absl::string_view bytes);

  // Lower hex.  Once, and nothing afterwards.
  std::string HexDigest();

 private:
  // OpenSSL's context, whose header stays out of here.
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace paceline
