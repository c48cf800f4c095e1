#include "coordinator/rpc/trust_service.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/obs/log.h"
#include "core/rpc/enrol.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

// Twice the size of a token and of a P-256 key's request.
constexpr size_t kMostTokenBytes = 100;
constexpr size_t kMostRequestBytes = 2048;

std::string Sha256Of(const std::string& text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

}  // namespace

v1::Authority TrustService::ViewAuthority() const {
  v1::Authority authority;
  authority.set_certificate(authority_->certificate());
  authority.set_unix_ms(absl::ToUnixMillis(SystemClock().Today()));
  return authority;
}

// Any peer may call this: it keeps nothing large, and signs and logs nothing
// before the token is accepted.
void TrustService::DoJoin(const v1::JoinRequest& request,
                          const std::string& peer,
                          const Done<v1::Certificate>& done) {
  const std::optional<Role> role = RoleOfName(request.role());
  if (!role.has_value() || request.token().size() > kMostTokenBytes ||
      request.request().size() > kMostRequestBytes) {
    return done(absl::InvalidArgumentError(
        "this is no role, token and request for a certificate"));
  }
  const Identity identity{*role, request.name()};
  const absl::StatusOr<std::string> key = KeyFingerprintOf(request.request());
  absl::Status status = key.status();
  if (status.ok()) status = Authority::CheckName(identity.name);
  if (!status.ok()) return done(status);
  const std::pair<std::string, std::string> token =
      absl::StrSplit(request.token(), absl::MaxSplits('.', 1));
  coordinator_.UseToken(
      {token.first, Sha256Of(token.second), request.role(),
       absl::StrCat(*key, "/", identity.name)},
      [this, done, identity, peer, pem = request.request(),
       until = RevokedUntil(identity)](const absl::Status& used) {
        if (!used.ok()) return done(used);
        if (RevokedUntil(identity) != until) {
          return done(absl::PermissionDeniedError(
              "the holder was revoked in this moment"));
        }
        Log(LogLevel::kInfo, "a certificate was given for a token",
            {{"role", RoleName(identity.role)},
             {"name", identity.name},
             {"peer", peer}});
        done(SignFor(identity, pem));
      });
}

absl::StatusOr<v1::Certificate> TrustService::SignFor(
    const Identity& identity, const std::string& request) const {
  v1::Certificate certificate;
  PACELINE_ASSIGN_OR_RETURN(
      *certificate.mutable_certificate(),
      authority_->SignFor(identity, request, SystemClock().Today()));
  return certificate;
}

void TrustService::DoRenew(
    const v1::RenewRequest& request,
    const std::shared_ptr<const grpc::AuthContext>& caller,
    const Done<v1::Certificate>& done) {
  const std::optional<Identity> identity = IdentityOf(*caller);
  if (!identity.has_value()) {
    return done(absl::UnauthenticatedError(
        "only the holder of a certificate gets a new one"));
  }
  const absl::StatusOr<std::string> key = KeyFingerprintOf(request.request());
  if (!key.ok()) return done(key.status());
  if (*key != KeyOf(*caller)) {
    return done(absl::PermissionDeniedError(
        "a certificate is renewed for its own key: another key joins with a "
        "token"));
  }
  const auto renew = [this, caller, done, identity = *identity,
                      pem = request.request()](const absl::Status& its) {
    if (!its.ok()) return done(its);
    auto renewed = SignFor(identity, pem);
    // A revocation since the call began does not cover the new certificate.
    const absl::Status revoked = CheckRevoked(*caller);
    if (!revoked.ok()) return done(revoked);
    done(std::move(renewed));
  };
  if (identity->role != Role::kWorker) return renew(absl::OkStatus());
  coordinator_.CheckKey(identity->name, *key, renew);
}

void TrustService::DoRevoke(const v1::RevokeRequest& request,
                            const Done<v1::Revocation>& done) {
  if (request.role() != RoleName(Role::kWorker) &&
      request.role() != RoleName(Role::kClient)) {
    return done(absl::InvalidArgumentError(
        "only certificates of workers and clients are revoked"));
  }
  const absl::Status name = Authority::CheckName(request.name());
  if (!name.ok()) return done(name);
  // Called before the worker's stream ends, so that it does not come back, and
  // even if the store refuses the write for now.
  coordinator_.Revoke(
      request,
      [](const v1::Revocation& revoked) {
        RevokeCertificates(absl::StrCat(revoked.role(), "/", revoked.name()),
                           absl::FromUnixMillis(revoked.unix_ms()));
      },
      done);
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
