#include "core/os/host_port.h"

#include <arpa/inet.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/utf8.h"

namespace paceline {
namespace {

absl::Status BadAddress(const std::string& address, absl::string_view why) {
  constexpr size_t kMostBytes = 80;  // of what is repeated
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToUtf8(address, kMostBytes),
                   "' is not HOST:PORT: ", why, ", as in 127.0.0.1:7400"));
}

// Digits only: neither "+1" nor " 1" is a port.
bool ParsePort(absl::string_view text, int* port) {
  if (text.empty() || text.size() > 5) return false;
  for (const char c : text) {
    if (!absl::ascii_isdigit(c)) return false;
  }
  return absl::SimpleAtoi(text, port) && *port <= 65535;
}

bool IsIpv6(const std::string& host) {
  in6_addr parsed;
  return inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& address) {
  if (absl::StrContains(address, "://")) {
    return BadAddress(address, "an address has no scheme and no path");
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return BadAddress(address, "it needs a colon and a port");
  }
  HostPort result;
  if (!ParsePort(absl::string_view(address).substr(colon + 1), &result.port)) {
    return BadAddress(address, "the port must be a number from 0 to 65535");
  }
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[")) {
    if (host.size() < 3 || host.back() != ']') {
      return BadAddress(address, "brackets do not match");
    }
    host = host.substr(1, host.size() - 2);
    // A scope ("fe80::1%eth0") is for getaddrinfo to judge.
    if (!IsIpv6(host.substr(0, host.find('%')))) {
      return BadAddress(address, "an IPv6 address belongs into the brackets");
    }
  } else if (IsIpv6(host.substr(0, host.find('%')))) {
    return BadAddress(address, absl::StrCat("an IPv6 address needs brackets, [",
                                            host, "]:", result.port));
  } else if (host.find_first_of(":[]") != std::string::npos) {
    return BadAddress(address, "the host holds a colon or a bracket");
  }
  for (const char c : host) {
    if (!absl::ascii_isgraph(c) || c == '/') {
      return BadAddress(address, "the host holds a blank, '/' or worse");
    }
  }
  result.host = std::move(host);
  return result;
}

std::string JoinHostPort(const std::string& host, int port) {
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

bool IsLoopback(const std::string& host) {
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == 127;
  }
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
    const bool is_mapped_127 =
        IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6) || is_mapped_127;
  }
  return false;
}

absl::StatusOr<HostPort> ParseHttpAddress(const std::string& address,
                                          bool allowed) {
  absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok() || allowed || IsLoopback(parsed->host)) return parsed;
  return absl::PermissionDeniedError(absl::StrCat(
      address,
      " is off loopback, where anybody may read it: add --http-tls (in the "
      "file: http-tls = true), or --http-insecure if its network is trusted"));
}

}  // namespace paceline
