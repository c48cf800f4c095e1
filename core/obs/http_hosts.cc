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

namespace paceline {
namespace {

std::string Normal(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StripSuffix(name, "."));
}

// Without port and brackets; empty: it is none.
std::string HostOf(absl::string_view authority) {
  const size_t bracket = authority.find(']');
  const bool is_v6 = absl::StartsWith(authority, "[");
  if (is_v6 && bracket == absl::string_view::npos) return "";
  const size_t begin = is_v6 ? bracket + 1 : authority.find(':');
  absl::string_view port = authority.substr(std::min(begin, authority.size()));
  if (!port.empty() && !absl::ConsumePrefix(&port, ":")) return "";
  if (!std::all_of(port.begin(), port.end(), absl::ascii_isdigit)) return "";
  if (!is_v6) return Normal(authority.substr(0, begin));
  const absl::string_view address = authority.substr(1, bracket - 1);
  return std::string(address.substr(0, address.find('%')));
}

bool IsAddress(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
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

bool IsOwnHost(absl::string_view authority,
               const std::vector<std::string>& given) {
  const std::string host = HostOf(authority);
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
