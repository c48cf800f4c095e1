// The client's view of a mesh's certificates and tokens.  Real:
// client/rpc/grpc_trust_client.h; in tests: FakeTrustClient.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "paceline/v1/trust.pb.h"

namespace paceline {

// A certificate says this of its holder.
struct ShownCertificate {
  std::string role;
  std::string name;
  absl::Time not_after;
  std::string folder;  // of its files
  absl::Time renewal;  // is due from then on
};

// Thread-compatible.  Calls block, but never longer than their deadline.
//
// Errors of every call, besides its own: Unavailable, Unauthenticated,
// PermissionDenied, FailedPrecondition (the coordinator runs without TLS)
class TrustClient {
 public:
  virtual ~TrustClient() = default;

  // Errors: InvalidArgument
  virtual absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) = 0;
  virtual absl::StatusOr<v1::ListTokensResponse> ListTokens() = 0;
  // Errors: NotFound
  virtual absl::StatusOr<v1::JoinToken> RevokeToken(const std::string& id) = 0;
  // Errors: InvalidArgument, ResourceExhausted
  virtual absl::StatusOr<v1::Revocation> Revoke(const std::string& role,
                                                const std::string& name) = 0;

  // Trades a token for a client's certificate.  `say` is told where the
  // coordinator is away.
  virtual absl::StatusOr<ShownCertificate> Login(
      const std::string& token, const std::string& user,
      absl::FunctionRef<void(const std::string&)> say) = 0;
  // The certificate that is there; asks nobody.
  // Errors: NotFound, and what is wrong with it
  virtual absl::StatusOr<ShownCertificate> Inspect() = 0;
  // Tries the coordinator with the certificate that is there.
  // Errors: what keeps them apart
  virtual absl::StatusOr<ShownCertificate> Check() = 0;
};

}  // namespace paceline
