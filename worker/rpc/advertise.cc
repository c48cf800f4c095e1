#include "worker/rpc/advertise.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/rpc/channel.h"

namespace paceline {

absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& bound) {
  PACELINE_ASSIGN_OR_RETURN(const HostPort listens, ParseHostPort(bound));
  HostPort result = listens;
  if (!advertise.empty()) {
    const absl::StatusOr<HostPort> wanted = ParseHostPort(advertise);
    if (!wanted.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--advertise: ", wanted.status().message()));
    }
    result = *wanted;
    if (result.port == 0) result.port = listens.port;
  }
  if (result.host == "0.0.0.0" || result.host == "::") result.host.clear();
  return JoinHostPort(result.host, result.port);
}

}  // namespace paceline
