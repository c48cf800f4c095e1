// paceline.v1.Trust: certificates for tokens; and the mesh's certificate
// authority, whose key stays on the coordinator's host.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/watch/metrics.h"
#include "core/base/errors.h"
#include "core/rpc/tls.h"
#include "core/trust/certificates.h"
#include "paceline/v1/trust.grpc.pb.h"

namespace paceline {

// Its files are in a folder of the coordinator's state:
//   ca.pem, ca.key               the authority
//   certificate.pem, key.pem     the coordinator's own
//   client/                      those of a client on this host: with them
//                                root makes the first token
// Immutable.
class Authority {
 public:
  // Makes missing files.  life: of the certificates that it signs.
  // Errors: those of the file system; InvalidArgument  a file is damaged
  static absl::StatusOr<std::unique_ptr<Authority>> Open(
      const std::string& folder, absl::Duration life, absl::Time now);

  const TlsFiles& own() const { return own_; }
  const std::string& certificate() const { return certificate_; }
  const std::string& fingerprint() const { return fingerprint_; }

  // Errors: InvalidArgument  not a valid name
  static absl::Status CheckName(const std::string& name);

  // Signs with a time after the identity's last revocation.
  // Errors: InvalidArgument  the name or the request is wrong
  absl::StatusOr<std::string> SignFor(const Identity& identity,
                                      const std::string& request,
                                      absl::Time now) const;

  // Renews the coordinator's certificate and that of the client on this host
  // where they are due.
  absl::Status RenewOwn(absl::Time now) const;

 private:
  Authority(const std::string& folder, absl::Duration life)
      : own_(folder), client_(folder + "/client"), life_(life) {}

  absl::Status Issue(const TlsFiles& files, const Identity& identity,
                     absl::Time now) const;

  const TlsFiles own_;
  const TlsFiles client_;
  const absl::Duration life_;
  std::string certificate_;
  std::string key_;
  std::string fingerprint_;
};

// Thread-safe.  Outlived by the constructor's arguments.
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

}  // namespace paceline
