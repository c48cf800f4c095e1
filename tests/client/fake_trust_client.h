// A coordinator's tokens and certificates, as a test says they are.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/rpc/control_client.h"

namespace paceline {

// Answers as the test says.  Thread-compatible.
class FakeTrustClient final : public TrustClient {
 public:
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) override {
    asked = request;
    v1::CreateTokenResponse response;
    response.set_token("id.secret.print");
    response.mutable_kept()->set_id("id");
    return Answer(response);
  }
  absl::StatusOr<v1::ListTokensResponse> ListTokens() override {
    v1::ListTokensResponse response;
    response.add_tokens()->set_id("abcd");
    return Answer(response);
  }
  absl::StatusOr<v1::JoinToken> RevokeToken(const std::string&) override {
    return Answer(v1::JoinToken());
  }
  absl::StatusOr<v1::Revocation> Revoke(const std::string& role,
                                        const std::string& name) override {
    v1::Revocation revocation;
    revocation.set_role(role);
    revocation.set_known(name == "pi-1");
    return Answer(revocation);
  }
  absl::StatusOr<ShownCertificate> Login(
      const std::string&, const std::string& user,
      absl::FunctionRef<void(const std::string&)> say) override {
    say("it is away");
    return Answer(
        ShownCertificate{"client", user, absl::UnixEpoch(), "/tls", {}});
  }
  absl::StatusOr<ShownCertificate> Inspect() override { return Answer(shown); }
  absl::StatusOr<ShownCertificate> Check() override {
    if (!check_error.ok()) return check_error;
    return Answer(shown);
  }

  ShownCertificate shown = {"client", "kim", absl::UnixEpoch(), "/tls", {}};
  v1::CreateTokenRequest asked;
  absl::Status error;        // OK: every call succeeds
  absl::Status check_error;  // of Check() alone

 private:
  template <typename T>
  absl::StatusOr<T> Answer(T answer) const {
    if (!error.ok()) return error;
    return answer;
  }
};

}  // namespace paceline
