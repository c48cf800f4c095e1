#include "coordinator/rpc/trust_service.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/rpc/serve.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/cluster/registration.h"
#include "core/obs/log.h"
#include "core/os/files.h"
#include "core/rpc/enrol.h"
#include "core/transfer/checksum.h"
#include "paceline/v1/trust.grpc.pb.h"

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

// Thread-safe.
class TrustService final : public v1::Trust::CallbackService {
 public:
  // authority: null without TLS.
  TrustService(Coordinator& coordinator, const Authority* authority,
               CoordinatorMetrics& metrics)
      : coordinator_(coordinator), authority_(authority), metrics_(metrics) {}

  PACELINE_CALL(GetAuthority, Authority,
                WithTls(done, [&] { done(ViewAuthority()); }))
  PACELINE_CALL(Join, Certificate,
                WithTls(done, [&] { DoJoin(*request, context->peer(), done); }))
  PACELINE_CALL(Renew, Certificate, WithTls(done, [&] {
                  DoRenew(*request, context->auth_context(), done);
                }))
  PACELINE_CALL(CreateToken, CreateTokenResponse,
                WithTls(done, [&] { DoCreateToken(*request, done); }))
  PACELINE_CALL(ListTokens, ListTokensResponse, WithTls(done, [&] {
                  coordinator_.Ask(done, [request](Brain& brain, Moment now) {
                    return brain.tokens().View(*request, now);
                  });
                }))
  PACELINE_CALL(RevokeToken, JoinToken, WithTls(done, [&] {
                  coordinator_.Change(done, [request](Brain& brain, Moment) {
                    return brain.tokens().OnRevoke(request->id());
                  });
                }))
  PACELINE_CALL(Revoke, Revocation,
                WithTls(done, [&] { DoRevoke(*request, done); }))

 private:
  // Calls `ask`; without TLS it fails.
  template <typename Answer, typename Ask>
  void WithTls(const Answer& done, const Ask& ask) {
    if (authority_ != nullptr) return ask();
    done(FailedPrecondition(
        "this coordinator runs without TLS: it has neither tokens nor "
        "certificates; start it with --tls"));
  }

  v1::Authority ViewAuthority() const;
  void DoJoin(const v1::JoinRequest& request, const std::string& peer,
              const Done<v1::Certificate>& done);
  absl::StatusOr<v1::Certificate> SignFor(const Identity& identity,
                                          const std::string& request) const;
  void DoRenew(const v1::RenewRequest& request,
               const std::shared_ptr<const grpc::AuthContext>& caller,
               const Done<v1::Certificate>& done);
  void DoRevoke(const v1::RevokeRequest& request,
                const Done<v1::Revocation>& done);
  void DoCreateToken(const v1::CreateTokenRequest& request,
                     const Done<v1::CreateTokenResponse>& done);

  Coordinator& coordinator_;
  const Authority* const authority_;
  CoordinatorMetrics& metrics_;
};

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
    return done(InvalidArgument(
        "this is no role, token and request for a certificate"));
  }
  const Identity identity{*role, request.name()};
  const absl::StatusOr<std::string> key = KeyFingerprintOf(request.request());
  absl::Status status = key.status();
  if (status.ok()) status = Authority::CheckName(identity.name);
  if (!status.ok()) return done(status);
  const std::pair<std::string, std::string> token =
      absl::StrSplit(request.token(), absl::MaxSplits('.', 1));
  const TokenUse use = {token.first, Sha256Of(token.second), request.role(),
                        absl::StrCat(*key, "/", identity.name)};
  coordinator_.Change(
      [this, done, identity, peer, pem = request.request(),
       until = RevokedUntil(identity)](const absl::Status& used) {
        if (!used.ok()) return done(used);
        if (RevokedUntil(identity) != until) {
          return done(
              PermissionDenied("the holder was revoked in this moment"));
        }
        Log(LogLevel::kInfo, "a certificate was given for a token",
            {{"role", RoleName(identity.role)},
             {"name", identity.name},
             {"peer", peer}});
        done(SignFor(identity, pem));
      },
      [use](Brain& brain, Moment now) { return brain.OnUseToken(use, now); });
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
    return done(
        Unauthenticated("only the holder of a certificate gets a new one"));
  }
  const absl::StatusOr<std::string> key = KeyFingerprintOf(request.request());
  if (!key.ok()) return done(key.status());
  if (*key != KeyOf(*caller)) {
    return done(PermissionDenied(
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
  coordinator_.Change(
      renew, [name = identity->name, key = *key](Brain& brain, Moment) {
        return brain.tokens().OnKey(name, key);
      });
}

void TrustService::DoRevoke(const v1::RevokeRequest& request,
                            const Done<v1::Revocation>& done) {
  if (request.role() != RoleName(Role::kWorker) &&
      request.role() != RoleName(Role::kClient)) {
    return done(InvalidArgument(
        "only certificates of workers and clients are revoked"));
  }
  const absl::Status name = Authority::CheckName(request.name());
  if (!name.ok()) return done(name);
  coordinator_.Change(done, [request](Brain& brain, Moment now) {
    auto revoked = brain.OnRevoke(request, now);
    // Before the worker's stream ends, so that it does not come back, and even
    // if the store refuses the write for now.
    if (revoked.ok()) {
      RevokeCertificates(absl::StrCat(revoked->role(), "/", revoked->name()),
                         absl::FromUnixMillis(revoked->unix_ms()));
    }
    return revoked;
  });
}

void TrustService::DoCreateToken(const v1::CreateTokenRequest& request,
                                 const Done<v1::CreateTokenResponse>& done) {
  const JoinTokenText token = DrawToken(authority_->fingerprint());
  coordinator_.Change(
      [=](const absl::StatusOr<v1::JoinToken>& kept) {
        if (!kept.ok()) return done(kept.status());
        v1::CreateTokenResponse response;
        response.set_token(token.ToText());
        *response.mutable_kept() = *kept;
        done(response);
      },
      [=](Brain& brain, Moment now) {
        return brain.tokens().OnCreate(request, token.id,
                                       Sha256Of(token.secret), now);
      });
}

}  // namespace

std::unique_ptr<grpc::Service> MakeTrustService(Coordinator& coordinator,
                                                const Authority* authority,
                                                CoordinatorMetrics& metrics) {
  return std::make_unique<TrustService>(coordinator, authority, metrics);
}

absl::StatusOr<std::unique_ptr<Authority>> Authority::Open(
    const std::string& folder, absl::Duration life, absl::Time now) {
  PACELINE_RETURN_IF_ERROR(MakeFolders(folder));
  std::unique_ptr<Authority> authority(new Authority(folder, life));
  const std::string key_path = folder + "/ca.key";
  const bool has_key = access(key_path.c_str(), F_OK) == 0;
  if (has_key != (access(authority->own_.authority.c_str(), F_OK) == 0)) {
    return InvalidArgument(
        has_key ? "ca.pem" : "ca.key",
        " is missing: put it back, or move the folder away to begin a new mesh "
        "that everybody joins anew");
  }
  if (!has_key) {
    const std::string key = MakeKey();
    PACELINE_ASSIGN_OR_RETURN(const std::string made, MakeAuthority(key, now));
    PACELINE_RETURN_IF_ERROR(WriteFileAtomically(key_path, key, 0600));
    PACELINE_RETURN_IF_ERROR(
        WriteFileAtomically(authority->own_.authority, made));
  }
  PACELINE_ASSIGN_OR_RETURN(authority->key_, ReadFile(key_path, kMostPemBytes));
  PACELINE_ASSIGN_OR_RETURN(authority->certificate_,
                            ReadFile(authority->own_.authority, kMostPemBytes));
  PACELINE_RETURN_IF_ERROR(CheckCertificate(
      authority->certificate_, authority->key_, authority->certificate_));
  PACELINE_ASSIGN_OR_RETURN(authority->fingerprint_,
                            FingerprintOf(authority->certificate_));
  PACELINE_RETURN_IF_ERROR(authority->RenewOwn(now));
  return authority;
}

absl::Status Authority::CheckName(const std::string& name) {
  const std::string why = WhyNoWorkerName(name);
  return why.empty() ? absl::OkStatus() : InvalidArgument(why);
}

absl::StatusOr<std::string> Authority::SignFor(const Identity& identity,
                                               const std::string& request,
                                               absl::Time now) const {
  PACELINE_RETURN_IF_ERROR(CheckName(identity.name));
  // Certificates have whole seconds, and the clock may have been set back.
  now = std::max(now, RevokedUntil(identity) + absl::Seconds(1));
  return Sign({request, identity, certificate_, key_, now, life_});
}

absl::Status Authority::RenewOwn(absl::Time now) const {
  PACELINE_RETURN_IF_ERROR(
      Issue(own_, {Role::kCoordinator, "coordinator"}, now));
  return Issue(client_, {Role::kClient, "root"}, now);
}

absl::Status Authority::Issue(const TlsFiles& files, const Identity& identity,
                              absl::Time now) const {
  // An unreadable certificate is made anew.
  if (!RenewalIsDue(files, now, RevokedUntil(identity)).value_or(true)) {
    return absl::OkStatus();
  }
  PACELINE_ASSIGN_OR_RETURN(const std::string key, KeyOf(files));
  PACELINE_ASSIGN_OR_RETURN(const std::string request, MakeSigningRequest(key));
  PACELINE_ASSIGN_OR_RETURN(const std::string certificate,
                            SignFor(identity, request, now));
  if (access(files.authority.c_str(), F_OK) == 0) {
    return WriteFileAtomically(files.certificate, certificate);
  }
  return WriteIdentity(files, certificate, certificate_);
}

}  // namespace paceline
