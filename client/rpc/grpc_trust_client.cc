#include "client/rpc/grpc_trust_client.h"

#include "client/rpc/pages.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/rpc/enrol.h"
#include "core/rpc/tls.h"

namespace paceline {
namespace {

absl::StatusOr<ShownCertificate> Shown(
    const TlsFiles& files, const absl::StatusOr<CertificateInfo>& info) {
  PACELINE_RETURN_IF_ERROR(info.status());
  const Identity identity = info->identity.value_or(Identity());
  return ShownCertificate{std::string(RoleName(identity.role)), identity.name,
                          info->not_after, files.folder, info->renewal()};
}

}  // namespace

absl::StatusOr<v1::CreateTokenResponse> GrpcTrustClient::CreateToken(
    const v1::CreateTokenRequest& request) {
  return CallTrust(coordinator_, CredentialsTo(Role::kCoordinator),
                   &v1::Trust::Stub::CreateToken, request);
}

absl::StatusOr<v1::ListTokensResponse> GrpcTrustClient::ListTokens() {
  return AllPages<v1::ListTokensResponse, v1::ListTokensRequest>(
      {}, [this](const v1::ListTokensRequest& request) {
        return CallTrust(coordinator_, CredentialsTo(Role::kCoordinator),
                         &v1::Trust::Stub::ListTokens, request);
      });
}

absl::StatusOr<v1::JoinToken> GrpcTrustClient::RevokeToken(
    const std::string& id) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  return CallTrust(coordinator_, CredentialsTo(Role::kCoordinator),
                   &v1::Trust::Stub::RevokeToken, request);
}

absl::StatusOr<v1::Revocation> GrpcTrustClient::Revoke(
    const std::string& role, const std::string& name) {
  v1::RevokeRequest request;
  request.set_role(role);
  request.set_name(name);
  return CallTrust(coordinator_, CredentialsTo(Role::kCoordinator),
                   &v1::Trust::Stub::Revoke, request);
}

absl::StatusOr<ShownCertificate> GrpcTrustClient::Login(
    const std::string& token, const std::string& user,
    absl::FunctionRef<void(const std::string&)> say) {
  const TlsFiles files(folder_);
  EnrolOptions options;
  options.coordinator = coordinator_;
  options.token = token;
  options.identity = {Role::kClient, user};
  options.say = say;
  PACELINE_RETURN_IF_ERROR(Enrol(options, files));
  return Inspect();
}

absl::StatusOr<ShownCertificate> GrpcTrustClient::Inspect() {
  const TlsFiles files(folder_);
  return Shown(files, InspectIdentity(files, SystemClock().Today()));
}

absl::StatusOr<ShownCertificate> GrpcTrustClient::Check() {
  const TlsFiles files(folder_);
  return Shown(files,
               TryCoordinator(coordinator_, files, SystemClock().Today()));
}

absl::Status UseClientTls(const std::string& coordinator,
                          const std::string& folder) {
  const TlsFiles files(folder);
  if (!files.exist()) return absl::OkStatus();
  PACELINE_RETURN_IF_ERROR(UseTls(files));
  // A coordinator that is away says so at the next call.
  RenewIfDue(coordinator, files, SystemClock().Today()).IgnoreError();
  return absl::OkStatus();
}

}  // namespace paceline
