#include "core/obs/http_hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "core/base/host_port.h"

namespace paceline {
namespace {

std::string Normal(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StripSuffix(name, "."));
}

bool IsAddress(const std::string& host) {
  in6_addr address;
  const std::string without_scope = host.substr(0, host.find('%'));
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, without_scope.c_str(), &address) == 1;
}

// Blocks while the resolver is asked.
bool IsNameWithDomain(const std::string& name, const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const bool is_same =
      found->ai_canonname != nullptr && name == Normal(found->ai_canonname);
  freeaddrinfo(found);
  return is_same;
}

}  // namespace

bool IsOwnHost(const std::string& authority,
               const std::vector<std::string>& given) {
  auto where = ParseHostPort(authority);
  if (!where.ok()) where = ParseHostPort(authority + ":80");
  if (!where.ok()) return false;
  const std::string host = Normal(where->host);
  if (host.empty()) return false;
  const auto is_host = [&host](const std::string& name) {
    return Normal(name) == host;
  };
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  const std::string own = Normal(name);
  const std::string label = own.substr(0, own.find('.'));
  return IsAddress(host) || host == "localhost" || host == own ||
         host == label || host == label + ".local" ||
         std::any_of(given.begin(), given.end(), is_host) ||
         (absl::StartsWith(host, label + ".") && IsNameWithDomain(host, own));
}

}  // namespace paceline
