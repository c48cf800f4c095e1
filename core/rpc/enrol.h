// How a machine or a person gets a certificate with a token, and a new one in
// time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/rpc/tls.h"
#include "core/trust/certificates.h"

namespace paceline {

// A token as people copy it: ID.SECRET.FINGERPRINT.
struct JoinTokenText {
  std::string id;
  std::string secret;
  std::string fingerprint;  // of the authority

  std::string ToText() const;
  // Errors: InvalidArgument  it is none
  static absl::StatusOr<JoinTokenText> Parse(const std::string& text);
};
// A fresh id and secret.
JoinTokenText DrawToken(const std::string& fingerprint);

struct EnrolOptions {
  std::string coordinator;  // host:port
  std::string token;
  Identity identity;
  absl::Duration patience = absl::Minutes(1);
  // Says once that the coordinator is away and is asked again.
  std::function<void(const std::string&)> say;
};

// Makes a key in the folder, where there is none, checks the authority by the
// token's fingerprint, trades the token for a certificate and writes both.
// Asks again while the coordinator is away.
// Errors: InvalidArgument     the token or the name
//         PermissionDenied    the token is refused, or of another mesh
//         FailedPrecondition  the clocks differ too much
//         Unavailable         the coordinator is away, or runs without TLS
absl::Status Enrol(const EnrolOptions& options, const TlsFiles& files);

absl::StatusOr<CertificateInfo> CertificateOf(const TlsFiles& files);
// Where a certificate is missing, two thirds of its life are over, it was
// signed up to `revoked`, or at a time that is still to come: a clock was
// ahead.
absl::StatusOr<bool> RenewalIsDue(const TlsFiles& files, absl::Time now,
                                  absl::Time revoked = absl::InfinitePast());
// Where it is due: asks the coordinator for a new certificate, and writes it.
// TlsIsUsed().
absl::Status RenewIfDue(const std::string& coordinator, const TlsFiles& files,
                        absl::Time now);

// Tries a renewal again and again, each time after twice as long a pause while
// it fails: 1 s up to 10 min, and no longer than an eighth of the time that is
// left to renew it in.  Thread-compatible.
class RenewalPace {
 public:
  // Calls `renew` unless it failed a moment ago.  Returns its error where that
  // is another one than the last time: it is to be logged.
  absl::Status Run(const TlsFiles& files, Instant now,
                   const std::function<absl::Status()>& renew);

 private:
  Instant next_;
  absl::Duration pause_;
  std::string why_;  // empty: it did not fail
};

// The key in the folder, which is made where there is none.
absl::StatusOr<std::string> KeyOf(const TlsFiles& files);
absl::Status WriteIdentity(const TlsFiles& files,
                           const std::string& certificate,
                           const std::string& authority);

// Says what is wrong with a certificate here and now; OK: nothing.
// Errors: NotFound            there is none
//         PermissionDenied    another authority, or another key
//         FailedPrecondition  expired, or signed at a time that is still to
//                             come: a clock is wrong, or was
absl::StatusOr<CertificateInfo> InspectIdentity(const TlsFiles& files,
                                                absl::Time now);

// Tries the coordinator with the certificate, and says what keeps them apart.
// Errors: as InspectIdentity()
//         PermissionDenied    it is of another mesh, or was revoked
//         FailedPrecondition  the clocks differ too much
//         Unavailable         nobody answers, or not with TLS
absl::StatusOr<CertificateInfo> TryCoordinator(const std::string& coordinator,
                                               const TlsFiles& files,
                                               absl::Time now);

}  // namespace paceline
