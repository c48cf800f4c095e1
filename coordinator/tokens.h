// Tokens with which machines and people join the mesh: short-lived, kept as
// hashes, each good for so many certificates.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/mesh_state.h"
#include "paceline/v1/trust.pb.h"

namespace paceline {

// A caller shows this for a certificate.
struct TokenUse {
  std::string id;
  std::string secret_sha256;
  std::string role;
  std::string holder;  // fingerprint of its key, and its name
};

// Thread-compatible; a part of the Brain.  Pure.
class Tokens {
 public:
  static constexpr int64_t kMostTokens = 1000;
  static constexpr int64_t kMostUses = 1000;
  static constexpr absl::Duration kLongestLife = absl::Hours(24 * 30);
  // Wrong tokens beyond these are not looked at for the rest of the minute.
  static constexpr size_t kMostWrongAMinute = 30;

  // `mesh` outlives this.
  //   keys  of workers: fingerprints by name, in lower case
  Tokens(MeshState& mesh, std::map<std::string, v1::JoinToken> kept,
         std::map<std::string, std::string> keys = {})
      : mesh_(mesh), tokens_(std::move(kept)), keys_(std::move(keys)) {}

  // `id` and `secret_sha256` are of a secret that was just drawn.
  // Errors: InvalidArgument    role, uses, lifetime
  //         ResourceExhausted  kMostTokens are there
  absl::StatusOr<v1::JoinToken> OnCreate(const v1::CreateTokenRequest& request,
                                         const std::string& id,
                                         const std::string& secret_sha256,
                                         Moment moment);
  // Takes one use; a holder that has one already takes none.  The name of a
  // worker is that key's from now on.
  // Errors: PermissionDenied, ResourceExhausted  as Trust.Join
  absl::Status OnUse(const TokenUse& use, Moment moment);
  // Errors: NotFound
  absl::StatusOr<v1::JoinToken> OnRevoke(const std::string& id);

  // A worker shows this key for its name, which is that key's if it was
  // nobody's.  Nothing happens without a name or a key: there is no TLS.
  // Errors: PermissionDenied  the name is another key's
  absl::Status OnKey(const std::string& name, const std::string& key);
  // The key that a worker's name belongs to; empty: it is free.
  std::string KeyOf(const std::string& name) const;
  // The name is free again.
  void FreeName(const std::string& name);

  // Its holder is locked out: it knows the tokens that it has used, and those
  // end too.
  void OnRevokeHolder(const std::string& role, const std::string& name);

  // By time of expiry, without hashes.
  // Errors: InvalidArgument  no such page
  absl::StatusOr<v1::ListTokensResponse> View(
      const v1::ListTokensRequest& request, Moment moment) const;

 private:
  void DropExpired(Moment moment);
  void Put(const v1::JoinToken& token);
  void Drop(const std::string& id);
  void Bind(const std::string& name, const std::string& key);

  MeshState& mesh_;
  std::map<std::string, v1::JoinToken> tokens_;  // by id
  // People take names that differ in their case alone for one.
  std::map<std::string, std::string> keys_;  // by AsciiStrToLower(name)
  std::deque<Instant> wrong_;                // of the last minute
};

}  // namespace paceline
