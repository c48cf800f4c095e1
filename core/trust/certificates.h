// Keys and certificates of a mesh: an authority of its own signs all others.
//
// A certificate names its holder by a URI: paceline://role/worker/pi-1.  Keys
// are of the curve P-256.  All are PEM.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace paceline {

// Longer files are no PEM of ours.
inline constexpr int64_t kMostPemBytes = 64 << 10;

// Every certificate names this host, and every channel asks for it: gRPC's
// server complains of each other name.  It proves nothing; the URI does.
inline constexpr char kTlsName[] = "paceline";

enum class Role { kCoordinator, kWorker, kClient };

absl::string_view RoleName(Role role);  // "worker"
std::optional<Role> RoleOfName(absl::string_view name);

struct Identity {
  Role role = Role::kClient;
  std::string name;

  friend bool operator==(const Identity&, const Identity&) = default;
};

std::string UriOf(const Identity& identity);
// Nothing: it is no URI of an identity.
std::optional<Identity> IdentityOfUri(absl::string_view uri);

// The clocks of a mesh may be so far apart.
inline constexpr absl::Duration kClocksDiffer = absl::Minutes(5);

struct CertificateInfo {
  std::optional<Identity> identity;  // nothing: an authority's
  // Certificates are valid from 1970 on, so that one that was signed while a
  // clock was ahead is of use when it is right again.
  absl::Time not_before;
  absl::Time not_after;
  absl::Time signed_time;
  std::string key;  // its fingerprint, as KeyFingerprintOf()

  absl::Time signed_at() const { return signed_time; }
  // From then on it is to be renewed: two thirds of its life are over.
  absl::Time renewal() const {
    return signed_time + (not_after - signed_time) * 2 / 3;
  }
};

// Errors of all that read PEM: InvalidArgument  it is not what it should be.

std::string MakeKey();
// An authority that signs itself, for ten years.
absl::StatusOr<std::string> MakeAuthority(const std::string& key,
                                          absl::Time now);
// The holder of `key` asks an authority to sign this.
absl::StatusOr<std::string> MakeSigningRequest(const std::string& key);

struct Signing {
  std::string request;
  Identity identity;
  std::string authority;      // its certificate
  std::string authority_key;  // its key
  absl::Time now;
  absl::Duration life;
};
// Nothing but its key is taken from the request.
absl::StatusOr<std::string> Sign(const Signing& signing);

absl::StatusOr<CertificateInfo> ReadCertificate(const std::string& certificate);
// The first certificate of a text, and nothing else of it: a reader that takes
// all of them would trust whatever stands behind it.
absl::StatusOr<std::string> OnlyCertificate(const std::string& text);
// Whether the authority signed it, and the key is its own.  Says nothing of the
// time.
// Errors: PermissionDenied  no
absl::Status CheckCertificate(const std::string& certificate,
                              const std::string& key,
                              const std::string& authority);
// Names a certificate, or the key that a request is of, by SHA-256.
inline constexpr size_t kFingerprintDigits = 32;
absl::StatusOr<std::string> FingerprintOf(const std::string& certificate);
absl::StatusOr<std::string> KeyFingerprintOf(const std::string& request);

// So many random bytes, as lower hex.
std::string RandomHex(int bytes);

}  // namespace paceline
