// TLS of this process: whose certificate it shows, whom it trusts, and who may
// call what.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/rpc/listener.h"
#include "core/trust/certificates.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace paceline {

// The files of an identity, in a folder of their own.
struct TlsFiles {
  explicit TlsFiles(const std::string& in)
      : folder(in),
        authority(in + "/ca.pem"),
        certificate(in + "/certificate.pem"),
        key(in + "/key.pem") {}

  // Whether there is a certificate.
  bool exist() const;

  const std::string folder;
  const std::string authority;
  const std::string certificate;
  const std::string key;
};

// Channels and servers that are made from then on use TLS with these files,
// which are read again when they change; open streams stay.  Once, before the
// first of them.
// Errors: InvalidArgument   a file is not what it should be
//         PermissionDenied  one cannot be read; key, certificate and authority
//                           do not belong together
//         NotFound          one is missing
absl::Status UseTls(const TlsFiles& files);
bool TlsIsUsed();

using Credentials = std::shared_ptr<grpc::ChannelCredentials>;
// Credentials of a channel to a server of that role, and of a server; without
// TLS insecure ones.  A server asks for a certificate, and for the process's
// secret where it has one; CheckSecret() and CheckAccess() decide.
Credentials CredentialsTo(Role server);
std::shared_ptr<grpc::ServerCredentials> ServerCredentials();
// With these files, whatever the process uses.
Credentials CredentialsWith(const TlsFiles& files, Role server);
// Trusts whoever answers: only to ask for an authority's certificate, which its
// fingerprint proves.
Credentials CredentialsToAnybody();
// Trusts one authority, and shows no certificate.
Credentials CredentialsTo(Role server, const std::string& authority);

// Names the connection of a call while it is open.
const void* ConnectionOf(const grpc::AuthContext& context);

// The peer's certificate says this.  Nothing: it has shown none.
std::optional<Identity> IdentityOf(const grpc::AuthContext& context);
// The fingerprint of the key of that certificate; empty: none was shown.
std::string KeyOf(const grpc::AuthContext& context);

// Certificates of the holder, "ROLE/NAME", that were signed up to then count no
// more, for this process's server.  A later call takes the place of an earlier
// one.  Thread-safe, as the two below.
void RevokeCertificates(const std::string& holder, absl::Time until);
// absl::InfinitePast(): none of its certificates was revoked.
absl::Time RevokedUntil(const Identity& identity);
// Every call is checked with this when it begins; a caller that may have waited
// since then is checked again.
// Errors: PermissionDenied  the caller's certificate was revoked
absl::Status CheckRevoked(const grpc::AuthContext& caller);

// One call of a service, and who may make it.
struct MethodAccess {
  absl::string_view method;  // "/paceline.v1.Control/ListJobs"
  std::vector<Role> roles;
  bool anybody = false;  // without a certificate too
};
const std::vector<MethodAccess>& AccessTable();

// Anybody may call Health/Watch, and each call takes 16 KiB: 64 may be open in
// this process, 4 of a connection.
inline constexpr char kHealthWatch[] = "/grpc.health.v1.Health/Watch";
StreamLimit& HealthWatches();

// Calls show the process's secret under this key.
inline constexpr char kSecretKey[] = "paceline-secret";
// shown: with the call; empty: nothing
// Errors: Unauthenticated  it is not the secret of this process, which the
//                          method needs
absl::Status CheckSecret(absl::string_view method, const std::string& shown);

// Errors: Unauthenticated   a certificate is needed
//         PermissionDenied  the role may not; the table does not have the
//         method
absl::Status CheckAccess(absl::string_view method,
                         const std::optional<Identity>& caller);

}  // namespace paceline
