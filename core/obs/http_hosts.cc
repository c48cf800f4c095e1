#include "core/obs/http_hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace paceline {
namespace {

constexpr absl::Duration kAskPeriod = absl::Minutes(1);

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
std::string WithDomain(const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return "";
  const std::string name =
      found->ai_canonname == nullptr ? "" : Normal(found->ai_canonname);
  freeaddrinfo(found);
  return name;
}

}  // namespace

HttpHosts::HttpHosts(std::vector<std::string> given)
    : given_([&given] {
        for (std::string& name : given) name = Normal(name);
        return std::move(given);
      }()) {}

bool HttpHosts::Allows(absl::string_view authority) const {
  const std::string host = HostOf(authority);
  if (host.empty()) return false;
  return IsAddress(host) || host == "localhost" ||
         std::find(given_.begin(), given_.end(), host) != given_.end() ||
         IsOwn(host);
}

bool HttpHosts::IsOwn(const std::string& name) const {
  char buffer[256] = {};
  if (gethostname(buffer, sizeof(buffer) - 1) != 0) return false;
  const std::string own = Normal(buffer);
  const std::string label = own.substr(0, own.find('.'));
  if (name == own || name == label || name == label + ".local") return true;
  if (label.empty() || !absl::StartsWith(name, label + ".")) return false;
  absl::MutexLock lock(&mutex_);
  if (absl::Now() > asked_ + kAskPeriod) {
    own_ = WithDomain(own);
    asked_ = absl::Now();
  }
  return name == own_;
}

}  // namespace paceline
