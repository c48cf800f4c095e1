#include "coordinator/rpc/trust_service.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/obs/log.h"
#include "core/rpc/enrol.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

std::string Sha256Of(const std::string& text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

}  // namespace

v1::Authority TrustService::ViewAuthority() const {
  v1::Authority authority;
  authority.set_certificate(authority_->certificate());
  authority.set_unix_ms(absl::ToUnixMillis(absl::Now()));
  return authority;
}

void TrustService::DoJoin(const v1::JoinRequest& request,
                          const std::string& peer,
                          const Done<v1::Certificate>& done) {
  const std::optional<Role> role = RoleOfName(request.role());
  // Before the token is used, so that a wrong name does not cost it.
  absl::StatusOr<std::string> signed_pem =
      authority_->SignFor({role.value_or(Role::kClient), request.name()},
                          request.request(), absl::Now());
  if (!signed_pem.ok()) return done(signed_pem.status());
  const absl::StatusOr<std::string> key = KeyFingerprintOf(request.request());
  if (!key.ok()) return done(key.status());
  const std::pair<std::string, std::string> token =
      absl::StrSplit(request.token(), absl::MaxSplits('.', 1));
  coordinator_.UseToken(
      {token.first, Sha256Of(token.second), request.role(), *key},
      [=, pem = *std::move(signed_pem)](const absl::Status& used) {
        Log(used.ok() ? LogLevel::kInfo : LogLevel::kWarn,
            used.ok() ? "a certificate was given for a token"
                      : "a token was refused",
            {{"role", request.role()},
             {"name", request.name()},
             {"peer", peer},
             {"why", used.ok() ? "its token" : used.message()}});
        if (!used.ok()) return done(used);
        v1::Certificate certificate;
        certificate.set_certificate(pem);
        done(certificate);
      });
}

absl::StatusOr<v1::Certificate> TrustService::DoRenew(
    const v1::RenewRequest& request, const std::optional<Identity>& caller) {
  if (!caller.has_value()) {
    return absl::UnauthenticatedError(
        "only the holder of a certificate gets a new one");
  }
  v1::Certificate certificate;
  PACELINE_ASSIGN_OR_RETURN(
      *certificate.mutable_certificate(),
      authority_->SignFor(*caller, request.request(), absl::Now()));
  return certificate;
}

void TrustService::DoCreateToken(const v1::CreateTokenRequest& request,
                                 const Done<v1::CreateTokenResponse>& done) {
  const JoinTokenText token = DrawToken(authority_->fingerprint());
  coordinator_.CreateToken(request, token.id, Sha256Of(token.secret),
                           [=](const absl::StatusOr<v1::JoinToken>& kept) {
                             if (!kept.ok()) return done(kept.status());
                             v1::CreateTokenResponse response;
                             response.set_token(token.ToText());
                             *response.mutable_kept() = *kept;
                             done(response);
                           });
}

}  // namespace paceline
