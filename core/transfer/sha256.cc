#include "core/transfer/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "core/base/check.h"

namespace paceline {

struct Sha256::Context {
  EVP_MD_CTX* hash = EVP_MD_CTX_new();

  ~Context() { EVP_MD_CTX_free(hash); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  PACELINE_CHECK(EVP_DigestInit_ex(context_->hash, EVP_sha256(), nullptr) == 1,
                 "OpenSSL has no SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::Update(absl::string_view bytes) {
  PACELINE_CHECK(
      EVP_DigestUpdate(context_->hash, bytes.data(), bytes.size()) == 1,
      "SHA-256 update");
}

std::string Sha256::HexDigest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  PACELINE_CHECK(EVP_DigestFinal_ex(context_->hash, digest, &bytes) == 1,
                 "SHA-256 final");
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), bytes));
}

}  // namespace paceline
