// paceline.v1.Trust: certificates for tokens; and the mesh's certificate
// authority, whose key stays on the coordinator's host.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/watch/metrics.h"
#include "core/rpc/tls.h"
#include "core/trust/certificates.h"
#include "grpcpp/impl/codegen/service_type.h"

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

// authority: null without TLS.  Outlived by its arguments.
std::unique_ptr<grpc::Service> MakeTrustService(Coordinator& coordinator,
                                                const Authority* authority,
                                                CoordinatorMetrics& metrics);

}  // namespace paceline
