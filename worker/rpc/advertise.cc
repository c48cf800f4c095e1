#include "worker/rpc/advertise.h"

#include "absl/strings/str_cat.h"
#include "core/base/host_port.h"
#include "core/base/status_macros.h"
#include "core/rpc/channel.h"

namespace paceline {
namespace {

bool IsEveryAddress(const std::string& host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

}  // namespace

absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& bound) {
  PACELINE_ASSIGN_OR_RETURN(const HostPort listens, ParseHostPort(bound));
  HostPort result = listens;
  if (!advertise.empty()) {
    PACELINE_ASSIGN_OR_RETURN(result, ParseHostPort(advertise));
    if (result.port == 0) result.port = listens.port;
  }
  if (IsEveryAddress(result.host)) result.host.clear();
  return JoinHostPort(result.host, result.port);
}

bool IsOwnAddress(const std::string& address, const std::string& bound,
                  const std::string& advertised) {
  if (address == advertised || address == bound) return true;
  const absl::StatusOr<HostPort> dialled = ParseHostPort(address);
  const absl::StatusOr<HostPort> listens = ParseHostPort(bound);
  return dialled.ok() && listens.ok() && dialled->port == listens->port &&
         IsLoopback(dialled->host) &&
         (IsLoopback(listens->host) || IsEveryAddress(listens->host));
}

}  // namespace paceline
