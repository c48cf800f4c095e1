// TrustClient over gRPC.
#pragma once

#include <string>

#include "client/rpc/trust_client.h"

namespace paceline {

// Thread-compatible.
class GrpcTrustClient final : public TrustClient {
 public:
  // folder: of the certificate for this coordinator
  GrpcTrustClient(std::string coordinator, std::string folder)
      : coordinator_(std::move(coordinator)), folder_(std::move(folder)) {}

  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) override;
  absl::StatusOr<v1::ListTokensResponse> ListTokens() override;
  absl::StatusOr<v1::JoinToken> RevokeToken(const std::string& id) override;
  absl::StatusOr<v1::Revocation> Revoke(const std::string& role,
                                        const std::string& name) override;
  absl::StatusOr<ShownCertificate> Login(
      const std::string& token, const std::string& user,
      absl::FunctionRef<void(const std::string&)> say) override;
  absl::StatusOr<ShownCertificate> Inspect() override;
  absl::StatusOr<ShownCertificate> Check() override;

 private:
  const std::string coordinator_;
  const std::string folder_;
};

// Uses the certificate of the folder for all later channels, and renews it
// where that is due.  Without one: nothing.
// Errors: those of UseTls()
absl::Status UseClientTls(const std::string& coordinator,
                          const std::string& folder);

}  // namespace paceline
