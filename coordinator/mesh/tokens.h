// Tokens with which machines and people join the mesh.  They are short-lived,
// stored as hashes, and each good for a number of certificates.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/mesh/mesh_state.h"
#include "paceline/v1/trust.pb.h"

namespace paceline {

// A caller presents this to get a certificate.
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
  // More wrong tokens than this in a minute are refused as too many.
  static constexpr size_t kMostWrongAMinute = 30;

  // `mesh` outlives this.
  //   keys  of workers: fingerprints by lower-case name
  Tokens(MeshState& mesh, std::map<std::string, v1::JoinToken> kept,
         std::map<std::string, std::string> keys = {})
      : mesh_(mesh), tokens_(std::move(kept)), keys_(std::move(keys)) {}

  // `id` and `secret_sha256` belong to a secret that was just drawn.
  // Errors: InvalidArgument    role, uses, lifetime
  //         ResourceExhausted  kMostTokens are there
  absl::StatusOr<v1::JoinToken> OnCreate(const v1::CreateTokenRequest& request,
                                         const std::string& id,
                                         const std::string& secret_sha256,
                                         Moment moment);
  // Takes one use, unless this holder has used the token before.  From now on a
  // worker's name belongs to its key.
  // Errors: PermissionDenied, ResourceExhausted  as Trust.Join
  absl::Status OnUse(const TokenUse& use, Moment moment);
  // Errors: NotFound
  absl::StatusOr<v1::JoinToken> OnRevoke(const std::string& id);

  // A worker presents its key for its name.  A free name goes to that key.
  // Does nothing without a name or a key, as without TLS.
  // Errors: PermissionDenied  the name is another key's
  absl::Status OnKey(const std::string& name, const std::string& key);
  // The key that a worker's name belongs to; empty: it is free.
  std::string KeyOf(const std::string& name) const;
  // Makes the name free again.
  void FreeName(const std::string& name);

  // Ends the tokens that a revoked holder has used, since it knows them, and
  // frees a worker's name.
  void OnRevokeHolder(const std::string& role, const std::string& name);

  // By time of expiry, without hashes.
  // Errors: InvalidArgument  no such page
  absl::StatusOr<v1::ListTokensResponse> View(
      const v1::ListTokensRequest& request, Moment moment) const;

 private:
  void DropIf(absl::FunctionRef<bool(const v1::JoinToken& token)> is_over);
  void Put(const v1::JoinToken& token);
  void Drop(const std::string& id);
  void Bind(const std::string& name, const std::string& key);

  MeshState& mesh_;
  std::map<std::string, v1::JoinToken> tokens_;  // by id
  // Lower case, since people confuse names that differ only in case.
  std::map<std::string, std::string> keys_;  // by AsciiStrToLower(name)
  std::deque<Instant> wrong_;                // of the last minute
};

}  // namespace paceline
