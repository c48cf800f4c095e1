#include "core/rpc/enrol.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/errors.h"
#include "core/os/files.h"
#include "core/os/thread.h"
#include "core/rpc/call_trust.h"

namespace paceline {
namespace {

constexpr absl::Duration kPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Minutes(10);
constexpr int kIdBytes = 4;
constexpr int kSecretBytes = 16;

absl::StatusOr<v1::Authority> AskForAuthority(const std::string& coordinator,
                                              const Credentials& credentials) {
  return CallTrust(coordinator, credentials, &v1::Trust::Stub::GetAuthority,
                   v1::GetAuthorityRequest());
}

// Errors: FailedPrecondition  it is too far from the coordinator's
absl::Status CheckClock(const v1::Authority& coordinator, absl::Time now) {
  const absl::Duration ahead =
      now - absl::FromUnixMillis(coordinator.unix_ms());
  const absl::Duration apart = absl::AbsDuration(ahead);
  if (apart <= kClocksDiffer) return absl::OkStatus();
  return FailedPrecondition(
      "this machine's clock is ",
      absl::FormatDuration(absl::Trunc(apart, absl::Seconds(1))),
      apart == ahead ? " ahead of" : " behind",
      " the coordinator's: set the one that is wrong, or certificates are "
      "refused");
}

bool IsHex(absl::string_view text, size_t digits) {
  return text.size() == digits &&
         absl::c_all_of(text, [](char c) { return absl::ascii_isxdigit(c); });
}

// Calls `ask` until the coordinator is there, or for so long.
template <typename T>
absl::StatusOr<T> Patiently(const EnrolOptions& options,
                            const std::function<absl::StatusOr<T>()>& ask) {
  const Instant give_up = SteadyNow() + options.patience;
  for (bool said = false;; said = true) {
    absl::StatusOr<T> answer = ask();
    // A network that drops what comes lets the call's time run out.
    if (!absl::IsUnavailable(answer.status()) &&
        !absl::IsDeadlineExceeded(answer.status())) {
      return answer;
    }
    if (SteadyNow() + kPause > give_up) {
      return Unavailable(
          "no coordinator with TLS answers at ", options.coordinator, " (",
          answer.status().message(),
          "): is it running with --tls, and does it listen there?");
    }
    if (!said && options.say != nullptr) {
      options.say(absl::StrCat("no coordinator answers at ",
                               options.coordinator, " yet: trying again"));
    }
    absl::SleepFor(kPause);
  }
}

}  // namespace

std::string JoinTokenText::ToText() const {
  return absl::StrCat(id, ".", secret, ".", fingerprint);
}

absl::StatusOr<JoinTokenText> JoinTokenText::Parse(const std::string& text) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::StripAsciiWhitespace(text), '.');
  if (parts.size() != 3 || !IsHex(parts[0], 2 * kIdBytes) ||
      !IsHex(parts[1], 2 * kSecretBytes) ||
      !IsHex(parts[2], kFingerprintDigits)) {
    return InvalidArgument(
        "this is no join token: copy all of what 'paceline token create' "
        "prints");
  }
  return JoinTokenText{parts[0], parts[1], parts[2]};
}

JoinTokenText DrawToken(const std::string& fingerprint) {
  return {RandomHex(kIdBytes), RandomHex(kSecretBytes), fingerprint};
}

absl::StatusOr<std::string> KeyOf(const TlsFiles& files) {
  PACELINE_RETURN_IF_ERROR(MakeFolders(files.folder));
  if (access(files.key.c_str(), F_OK) == 0) {
    return ReadFile(files.key, kMostPemBytes);
  }
  const std::string key = MakeKey();
  PACELINE_RETURN_IF_ERROR(WriteFileAtomically(files.key, key, 0600));
  return key;
}

absl::Status WriteIdentity(const TlsFiles& files,
                           const std::string& certificate,
                           const std::string& authority) {
  PACELINE_RETURN_IF_ERROR(WriteFileAtomically(files.authority, authority));
  return WriteFileAtomically(files.certificate, certificate);
}

absl::Status Enrol(const EnrolOptions& options, const TlsFiles& files) {
  PACELINE_ASSIGN_OR_RETURN(const JoinTokenText token,
                            JoinTokenText::Parse(options.token));
  PACELINE_ASSIGN_OR_RETURN(
      const v1::Authority answer, Patiently<v1::Authority>(options, [&options] {
        return AskForAuthority(options.coordinator, CredentialsToAnybody());
      }));
  // The fingerprint is that of one certificate.
  PACELINE_ASSIGN_OR_RETURN(const std::string authority,
                            OnlyCertificate(answer.certificate()));
  PACELINE_ASSIGN_OR_RETURN(const std::string fingerprint,
                            FingerprintOf(authority));
  if (fingerprint != token.fingerprint) {
    return PermissionDenied("the token is of another mesh: its authority is ",
                            token.fingerprint, ", that of ",
                            options.coordinator, " is ", fingerprint);
  }
  PACELINE_RETURN_IF_ERROR(CheckClock(answer, SystemClock().Today()));
  PACELINE_ASSIGN_OR_RETURN(const std::string key, KeyOf(files));
  v1::JoinRequest request;
  request.set_token(absl::StrCat(token.id, ".", token.secret));
  request.set_role(std::string(RoleName(options.identity.role)));
  request.set_name(options.identity.name);
  PACELINE_ASSIGN_OR_RETURN(*request.mutable_request(),
                            MakeSigningRequest(key));
  const Credentials trusted = CredentialsTo(Role::kCoordinator, authority);
  PACELINE_ASSIGN_OR_RETURN(const v1::Certificate certificate,
                            Patiently<v1::Certificate>(options, [&] {
                              return CallTrust(options.coordinator, trusted,
                                               &v1::Trust::Stub::Join, request);
                            }));
  PACELINE_RETURN_IF_ERROR(
      CheckCertificate(certificate.certificate(), key, authority));
  return WriteIdentity(files, certificate.certificate(), authority);
}

absl::StatusOr<CertificateInfo> CertificateOf(const TlsFiles& files) {
  PACELINE_ASSIGN_OR_RETURN(const std::string certificate,
                            ReadFile(files.certificate, kMostPemBytes));
  return ReadCertificate(certificate);
}

absl::StatusOr<bool> RenewalIsDue(const TlsFiles& files, absl::Time now,
                                  absl::Time revoked) {
  if (!files.exist()) return true;
  PACELINE_ASSIGN_OR_RETURN(const CertificateInfo info, CertificateOf(files));
  // Where the holder was revoked while a clock was ahead, nobody signs earlier.
  const absl::Time latest = std::max(now, revoked) + kClocksDiffer;
  return now >= info.renewal() || info.signed_at() <= revoked ||
         info.signed_at() > latest;
}

absl::Status RenewalPace::Run(const TlsFiles& files, Instant now,
                              const std::function<absl::Status()>& renew) {
  if (now < next_) return absl::OkStatus();
  const absl::Status renewed = renew();
  const auto own = CertificateOf(files);
  const absl::Duration longest =
      own.ok() ? std::min(kLongestPause, (own->not_after - own->renewal()) / 8)
               : kLongestPause;
  pause_ = renewed.ok() ? absl::ZeroDuration()
                        : std::min(longest, std::max(kPause, 2 * pause_));
  next_ = now + pause_;
  std::string why(renewed.message());
  const bool is_new = why != why_;
  why_ = std::move(why);
  return is_new ? renewed : absl::OkStatus();
}

absl::Status RenewIfDue(const std::string& coordinator, const TlsFiles& files,
                        absl::Time now) {
  PACELINE_ASSIGN_OR_RETURN(const bool due, RenewalIsDue(files, now));
  if (!due) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const std::string key,
                            ReadFile(files.key, kMostPemBytes));
  PACELINE_ASSIGN_OR_RETURN(const std::string authority,
                            ReadFile(files.authority, kMostPemBytes));
  v1::RenewRequest request;
  PACELINE_ASSIGN_OR_RETURN(*request.mutable_request(),
                            MakeSigningRequest(key));
  PACELINE_ASSIGN_OR_RETURN(
      const v1::Certificate renewed,
      CallTrust(coordinator, CredentialsTo(Role::kCoordinator),
                &v1::Trust::Stub::Renew, request));
  PACELINE_RETURN_IF_ERROR(
      CheckCertificate(renewed.certificate(), key, authority));
  PACELINE_RETURN_IF_ERROR(
      WriteFileAtomically(files.certificate, renewed.certificate()));
  PACELINE_ASSIGN_OR_RETURN(const bool still_due, RenewalIsDue(files, now));
  return still_due ? FailedPrecondition(
                         "the coordinator's clock and this machine's differ: "
                         "the new certificate is to be renewed at once")
                   : absl::OkStatus();
}

absl::StatusOr<CertificateInfo> InspectIdentity(const TlsFiles& files,
                                                absl::Time now) {
  if (!files.exist()) {
    return NotFound(
        "there is no certificate in ", files.folder,
        ": get one with a token ('paceline login HOST:PORT TOKEN' or "
        "'paceline-worker join HOST:PORT TOKEN')");
  }
  PACELINE_ASSIGN_OR_RETURN(const std::string certificate,
                            ReadFile(files.certificate, kMostPemBytes));
  PACELINE_ASSIGN_OR_RETURN(const std::string key,
                            ReadFile(files.key, kMostPemBytes));
  PACELINE_ASSIGN_OR_RETURN(const std::string authority,
                            ReadFile(files.authority, kMostPemBytes));
  PACELINE_RETURN_IF_ERROR(CheckCertificate(certificate, key, authority));
  PACELINE_ASSIGN_OR_RETURN(const CertificateInfo info,
                            ReadCertificate(certificate));
  if (now < std::max(info.not_before, info.signed_at() - kClocksDiffer)) {
    return FailedPrecondition(
        "the certificate was signed at ", absl::FormatTime(info.signed_at()),
        ", and this machine's clock says ", absl::FormatTime(now),
        ": set the clock that is wrong, here or on the coordinator's host");
  }
  if (now > info.not_after) {
    return FailedPrecondition(
        "the certificate has expired at ", absl::FormatTime(info.not_after),
        ": get another one with a token, or set the clock, which says ",
        absl::FormatTime(now));
  }
  return info;
}

absl::StatusOr<CertificateInfo> TryCoordinator(const std::string& coordinator,
                                               const TlsFiles& files,
                                               absl::Time now) {
  const absl::StatusOr<CertificateInfo> info = InspectIdentity(files, now);
  // Whose clock is wrong, the coordinator's tells.
  if (!info.ok() && !absl::IsFailedPrecondition(info.status())) return info;
  const auto authority = AskForAuthority(coordinator, CredentialsToAnybody());
  if (!authority.ok()) {
    return Unavailable("no coordinator with TLS answers at ", coordinator, ": ",
                       authority.status().message());
  }
  PACELINE_ASSIGN_OR_RETURN(const std::string trusted,
                            ReadFile(files.authority, kMostPemBytes));
  if (authority->certificate() != trusted) {
    return PermissionDenied("the coordinator at ", coordinator,
                            " is of another mesh: another authority signed its "
                            "certificate");
  }
  PACELINE_RETURN_IF_ERROR(CheckClock(*authority, now));
  PACELINE_ASSIGN_OR_RETURN(const CertificateInfo own, CertificateOf(files));
  if (own.signed_at() > now + kClocksDiffer) {
    return FailedPrecondition(
        "the certificate was signed at ", absl::FormatTime(own.signed_at()),
        ", while a clock was ahead; both are right now: a daemon that runs "
        "gets a new one by itself, others with a token");
  }
  PACELINE_RETURN_IF_ERROR(info.status());
  const auto answer =
      AskForAuthority(coordinator, CredentialsWith(files, Role::kCoordinator));
  if (answer.ok()) return info;
  return absl::Status(answer.status().code(),
                      absl::StrCat("the coordinator refuses the certificate: ",
                                   answer.status().message()));
}

}  // namespace paceline
