#include "core/rpc/tls.h"

#include <unistd.h>

#include <cerrno>
#include <functional>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"
#include "core/os/files.h"
#include "core/rpc/status.h"
#include "core/trust/secret.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpc/grpc_security_constants.h"
#include "grpc/slice.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace paceline {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned int kLookForNewFilesSeconds = 1;
constexpr char kPeerUri[] = "peer_uri";  // gRPC's names
constexpr char kPeerCertificate[] = "x509_pem_cert";
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

using Provider = std::shared_ptr<tls::CertificateProviderInterface>;

// Null: no TLS.  Set once, before threads use it.
Provider& ProcessProvider() {
  static Provider* const provider = new Provider;
  return *provider;
}

struct Revocations {
  absl::Mutex mutex;
  std::map<std::string, absl::Time> until ABSL_GUARDED_BY(mutex);  // by holder
};

Revocations& ProcessRevocations() {
  static Revocations* const revocations = new Revocations;
  return *revocations;
}

// pem: the certificate that was shown
bool IsRevoked(const Identity& identity, const std::string& pem) {
  const absl::Time until = RevokedUntil(identity);
  if (until == absl::InfinitePast()) return false;
  const auto shown = ReadCertificate(pem);
  return !shown.ok() || shown->signed_at() <= until;
}

std::string PemOf(const grpc::AuthContext& context) {
  std::string pem;
  for (const grpc::string_ref& each :
       context.FindPropertyValues(kPeerCertificate)) {
    pem.assign(each.data(), each.size());
  }
  return pem;
}

// Accepts servers whose certificate has the role.  The name in it is nobody's
// host name: workers move, and are dialled by address.  Immutable.
class RoleVerifier final : public tls::ExternalCertificateVerifier {
 public:
  explicit RoleVerifier(std::optional<Role> role) : role_(role) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/,
              grpc::Status* status) override {
    *status = grpc::Status::OK;
    if (!role_.has_value()) return true;
    for (const grpc::string_ref& uri : request->uri_names()) {
      const auto identity = IdentityOfUri({uri.data(), uri.size()});
      if (!identity.has_value() || identity->role != *role_) continue;
      const grpc::string_ref pem = request->peer_cert();
      if (!IsRevoked(*identity, {pem.data(), pem.size()})) return true;
      *status = {grpc::StatusCode::UNAUTHENTICATED,
                 "its certificate was revoked"};
      return true;
    }
    *status = {
        grpc::StatusCode::UNAUTHENTICATED,
        absl::StrCat("its certificate is not that of a ", RoleName(*role_))};
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::optional<Role> role_;
};

Provider ProviderOf(const TlsFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key, files.certificate, files.authority, kLookForNewFilesSeconds);
}

Credentials ChannelCredentialsOf(tls::TlsChannelCredentialsOptions options,
                                 std::optional<Role> role) {
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<RoleVerifier>(role));
  options.set_check_call_host(false);
  return tls::TlsCredentials(options);
}

Credentials MutualCredentials(const Provider& provider, Role server) {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return ChannelCredentialsOf(std::move(options), server);
}

// Counts a call that may be made against the bounds for strangers.
absl::Status CheckBounds(absl::string_view method, const void* connection,
                         bool is_known) {
  // Before gRPC makes anything of it: many come at once.
  if (method == kHealthWatch) {
    PACELINE_RETURN_IF_ERROR(HealthWatches().CheckRoom());
  }
  return is_known ? absl::OkStatus() : Listener::OnBegun(connection);
}

// Decides about every call.  Thread-safe.
class AccessCheck final : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context, OutputMetadata* /*consumed*/,
                       OutputMetadata* /*response*/) override {
    const auto path = metadata.find(":path");
    if (path == metadata.end()) {
      return {grpc::StatusCode::PERMISSION_DENIED, "a call without a method"};
    }
    const absl::string_view method(path->second.data(), path->second.size());
    const auto shown = metadata.find(kSecretKey);
    std::string secret;
    if (shown != metadata.end()) {
      secret.assign(shown->second.data(), shown->second.size());
    }
    return ToGrpc(Check(method, secret, *context));
  }

 private:
  static absl::Status Check(absl::string_view method, const std::string& secret,
                            const grpc::AuthContext& context) {
    PACELINE_RETURN_IF_ERROR(CheckRevoked(context));
    PACELINE_RETURN_IF_ERROR(CheckSecret(method, secret));
    const std::optional<Identity> caller = IdentityOf(context);
    PACELINE_RETURN_IF_ERROR(CheckAccess(method, caller));
    return CheckBounds(method, ConnectionOf(context), caller.has_value());
  }
};

// Decides about every call where there is no TLS.  gRPC's core does what its
// C++ refuses to: it asks a processor about calls of insecure connections.
class PlainCredentials final : public grpc::ServerCredentials {
 public:
  PlainCredentials() {
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {&Process, [](void*) {}, nullptr});
  }
  ~PlainCredentials() override {
    grpc_server_credentials_release(credentials_);
  }
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static void Process(void* /*state*/, grpc_auth_context* context,
                      const grpc_metadata* metadata, size_t count,
                      grpc_process_auth_metadata_done_cb done, void* call) {
    std::string method;
    std::string secret;
    for (size_t i = 0; i < count; ++i) {
      for (auto [key, value] :
           {std::pair(":path", &method), std::pair(kSecretKey, &secret)}) {
        if (grpc_slice_str_cmp(metadata[i].key, key) != 0) continue;
        const grpc_slice& text = metadata[i].value;
        value->assign(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(text)),
                      GRPC_SLICE_LENGTH(text));
      }
    }
    absl::Status status = CheckSecret(method, secret);
    const bool is_known = !UsedSecret().empty() && method != kHealthCheck;
    if (status.ok()) {
      auto found = grpc_auth_context_find_properties_by_name(
          context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
      const grpc_auth_property* kind = grpc_auth_property_iterator_next(&found);
      status = CheckBounds(method, kind == nullptr ? nullptr : kind->value,
                           is_known);
    }
    done(call, nullptr, 0, nullptr, 0,
         static_cast<grpc_status_code>(status.code()),
         status.ok() ? nullptr : std::string(status.message()).c_str());
  }

  grpc_server_credentials* const credentials_ =
      grpc_insecure_server_credentials_create();
};

}  // namespace

// A file that may not be looked at is there: to use it fails loudly.
bool TlsFiles::exist() const {
  return access(certificate.c_str(), F_OK) == 0 || errno == EACCES;
}

absl::Status UseTls(const TlsFiles& files) {
  PACELINE_ASSIGN_OR_RETURN(const std::string authority,
                            ReadFile(files.authority, kMostPemBytes));
  PACELINE_ASSIGN_OR_RETURN(const std::string certificate,
                            ReadFile(files.certificate, kMostPemBytes));
  PACELINE_ASSIGN_OR_RETURN(const std::string key,
                            ReadFile(files.key, kMostPemBytes));
  const absl::Status fits = CheckCertificate(certificate, key, authority);
  if (!fits.ok()) {
    return absl::Status(fits.code(),
                        absl::StrCat("the certificate in ", files.folder,
                                     " cannot be used: ", fits.message()));
  }
  ProcessProvider() = ProviderOf(files);
  return absl::OkStatus();
}

bool TlsIsUsed() { return ProcessProvider() != nullptr; }

Credentials CredentialsTo(Role server) {
  return TlsIsUsed() ? MutualCredentials(ProcessProvider(), server)
                     : grpc::InsecureChannelCredentials();
}

Credentials CredentialsWith(const TlsFiles& files, Role server) {
  return MutualCredentials(ProviderOf(files), server);
}

Credentials CredentialsTo(Role server, const std::string& authority) {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<tls::StaticDataCertificateProvider>(
          authority, std::vector<tls::IdentityKeyCertPair>()));
  options.watch_root_certs();
  return ChannelCredentialsOf(std::move(options), server);
}

Credentials CredentialsToAnybody() {
  tls::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  return ChannelCredentialsOf(std::move(options), std::nullopt);
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials() {
  if (!TlsIsUsed()) return std::make_shared<PlainCredentials>();
  tls::TlsServerCredentialsOptions options(ProcessProvider());
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  auto credentials = tls::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<AccessCheck>());
  return credentials;
}

const void* ConnectionOf(const grpc::AuthContext& context) {
  // gRPC keeps a copy of the word for each connection.
  const auto kind =
      context.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return kind.empty() ? nullptr : kind.front().data();
}

std::optional<Identity> IdentityOf(const grpc::AuthContext& context) {
  if (!context.IsPeerAuthenticated()) return std::nullopt;
  for (const grpc::string_ref& uri : context.FindPropertyValues(kPeerUri)) {
    if (auto identity = IdentityOfUri({uri.data(), uri.size()})) {
      return identity;
    }
  }
  return std::nullopt;
}

std::string KeyOf(const grpc::AuthContext& context) {
  if (!context.IsPeerAuthenticated()) return "";
  const auto shown = ReadCertificate(PemOf(context));
  return shown.ok() ? shown->key : "";
}

void RevokeCertificates(const std::string& holder, absl::Time until) {
  Revocations& revocations = ProcessRevocations();
  absl::MutexLock lock(&revocations.mutex);
  revocations.until[holder] = until;
}

absl::Time RevokedUntil(const Identity& identity) {
  Revocations& revocations = ProcessRevocations();
  absl::MutexLock lock(&revocations.mutex);
  const auto found = revocations.until.find(
      absl::StrCat(RoleName(identity.role), "/", identity.name));
  return found == revocations.until.end() ? absl::InfinitePast()
                                          : found->second;
}

absl::Status CheckRevoked(const grpc::AuthContext& caller) {
  const std::optional<Identity> identity = IdentityOf(caller);
  if (!identity.has_value()) return absl::OkStatus();
  if (!IsRevoked(*identity, PemOf(caller))) return absl::OkStatus();
  return PermissionDenied("the certificate of ", RoleName(identity->role), " ",
                          identity->name,
                          " was revoked: a new token gets another one");
}

const std::vector<MethodAccess>& AccessTable() {
  constexpr Role kCoordinator = Role::kCoordinator;
  constexpr Role kWorker = Role::kWorker;
  constexpr Role kClient = Role::kClient;
  static const auto* const table = new std::vector<MethodAccess>{
      {"/paceline.v1.Control/SubmitJob", {kClient}},
      {"/paceline.v1.Control/ListJobs", {kClient}},
      {"/paceline.v1.Control/GetJob", {kClient}},
      {"/paceline.v1.Control/GetEvents", {kClient}},
      {"/paceline.v1.Control/GetLogs", {kClient}},
      {"/paceline.v1.Control/StopJob", {kClient}},
      {"/paceline.v1.Control/DeleteJob", {kClient}},
      {"/paceline.v1.Control/ExportWeights", {kClient}},
      {"/paceline.v1.Control/ListWorkers", {kClient}},
      {"/paceline.v1.Control/WatchMesh", {kClient}},
      {"/paceline.v1.Control/DrainWorker", {kClient}},
      {"/paceline.v1.Control/ForgetWorker", {kClient}},
      {"/paceline.v1.Control/StartProfile", {kClient}},
      {"/paceline.v1.Control/GetProfile", {kClient}},
      {"/paceline.v1.Control/ListMeasurements", {kClient}},
      {"/paceline.v1.Coordinator/Attach", {kWorker}},
      {"/paceline.v1.Coordinator/UploadWeights", {kWorker}},
      {"/paceline.v1.Stage/Exchange", {kWorker}},
      {"/paceline.v1.Stage/ReportStep", {kWorker}},
      {"/paceline.v1.Stage/Probe", {kWorker}},
      // The coordinator reads checkpoints from workers, and serves them.
      {"/paceline.v1.Stage/Pieces", {kWorker, kCoordinator}},
      {"/paceline.v1.Round/Exchange", {kWorker}},
      {"/paceline.v1.Trust/GetAuthority", {}, true},
      {"/paceline.v1.Trust/Join", {}, true},
      {"/paceline.v1.Trust/Renew", {kWorker, kClient}},
      {"/paceline.v1.Trust/CreateToken", {kClient}},
      {"/paceline.v1.Trust/ListTokens", {kClient}},
      {"/paceline.v1.Trust/RevokeToken", {kClient}},
      {"/paceline.v1.Trust/Revoke", {kClient}},
      {"/grpc.health.v1.Health/Check", {}, true},
      {"/grpc.health.v1.Health/Watch", {}, true},
  };
  return *table;
}

StreamLimit& HealthWatches() {
  static auto* const watches =
      new StreamLimit(4, 64, StreamLimit::Of::kConnection);
  return *watches;
}

absl::Status CheckSecret(absl::string_view method, const std::string& shown) {
  if (UsedSecret().empty() || method == kHealthCheck || IsUsedSecret(shown)) {
    return absl::OkStatus();
  }
  return Unauthenticated(
      method, " needs the secret of this mesh, and ",
      shown.empty() ? "none" : "another one",
      " was shown: only users who may read its file take part; name it with "
      "--secret-file FILE, or start a mesh of your own with 'paceline up'");
}

absl::Status CheckAccess(absl::string_view method,
                         const std::optional<Identity>& caller) {
  const auto& table = AccessTable();
  const auto row = absl::c_find_if(
      table, [&](const MethodAccess& each) { return each.method == method; });
  if (row == table.end()) return PermissionDenied("nobody may call ", method);
  if (row->anybody) return absl::OkStatus();
  const std::string need =
      absl::StrJoin(row->roles, " or ", [](std::string* out, Role role) {
        absl::StrAppend(out, RoleName(role));
      });
  if (!caller.has_value()) {
    return Unauthenticated(
        method, " needs the certificate of a ", need,
        ", and none was shown: 'paceline login' or 'paceline-worker join' gets "
        "one with a token");
  }
  if (absl::c_linear_search(row->roles, caller->role)) {
    return absl::OkStatus();
  }
  return PermissionDenied(method, " needs the certificate of a ", need,
                          ", and ", caller->name, " is a ",
                          RoleName(caller->role));
}

}  // namespace paceline
