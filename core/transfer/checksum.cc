#include "core/transfer/checksum.h"

#include <openssl/evp.h>

// For the state's size: it is on the stack, not on the heap.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
// The same digest by the widest vectors of this very CPU; the library's plain
// functions are built for the oldest.
#include <xxh_x86dispatch.h>
#endif

#include "absl/strings/escaping.h"
#include "core/base/errors.h"
#include "core/os/files.h"

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

absl::StatusOr<uint64_t> HashFile(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<ByteFile> file,
                            ByteFile::Open(path));
  Checksum checksum;
  PACELINE_RETURN_IF_ERROR(
      file->Scan(1, [&](int64_t, absl::Span<const uint8_t> bytes) {
        checksum.Update(bytes);
        return absl::OkStatus();
      }));
  return checksum.Digest();
}

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
