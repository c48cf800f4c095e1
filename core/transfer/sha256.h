// SHA-256 (FIPS 180-4) of bytes that come in pieces: what names a weights file.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace paceline {

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
