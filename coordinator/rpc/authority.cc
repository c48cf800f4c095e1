#include "coordinator/rpc/authority.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cluster/worker_name.h"
#include "core/os/files.h"
#include "core/rpc/enrol.h"

namespace paceline {

absl::StatusOr<std::unique_ptr<Authority>> Authority::Open(
    const std::string& folder, absl::Duration life, absl::Time now) {
  PACELINE_RETURN_IF_ERROR(MakeFolders(folder));
  std::unique_ptr<Authority> authority(new Authority(folder, life));
  const std::string key_path = folder + "/ca.key";
  const bool has_key = access(key_path.c_str(), F_OK) == 0;
  if (has_key != (access(authority->own_.authority.c_str(), F_OK) == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        has_key ? "ca.pem" : "ca.key",
        " is missing: put it back, or move the folder away to begin a new mesh "
        "that everybody joins anew"));
  }
  if (!has_key) {
    authority->key_ = MakeKey();
    PACELINE_ASSIGN_OR_RETURN(authority->certificate_,
                              MakeAuthority(authority->key_, now));
    PACELINE_RETURN_IF_ERROR(
        WriteFileAtomically(key_path, authority->key_, 0600));
    PACELINE_RETURN_IF_ERROR(WriteFileAtomically(authority->own_.authority,
                                                 authority->certificate_));
  } else {
    PACELINE_ASSIGN_OR_RETURN(authority->key_,
                              ReadFile(key_path, kMostPemBytes));
    PACELINE_ASSIGN_OR_RETURN(
        authority->certificate_,
        ReadFile(authority->own_.authority, kMostPemBytes));
  }
  PACELINE_RETURN_IF_ERROR(CheckCertificate(
      authority->certificate_, authority->key_, authority->certificate_));
  PACELINE_ASSIGN_OR_RETURN(authority->fingerprint_,
                            FingerprintOf(authority->certificate_));
  PACELINE_RETURN_IF_ERROR(authority->RenewOwn(now));
  return authority;
}

absl::Status Authority::CheckName(const std::string& name) {
  const std::string why = WhyNoWorkerName(name);
  return why.empty() ? absl::OkStatus() : absl::InvalidArgumentError(why);
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
