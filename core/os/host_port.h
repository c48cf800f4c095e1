// Addresses as people write them: HOST:PORT.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace paceline {

struct HostPort {
  std::string host;  // without brackets; empty: every address of the machine
  int port = 0;
};

// "host:port", "[::1]:7400", ":7400".
// Errors: InvalidArgument  it is none; the message says why
absl::StatusOr<HostPort> ParseHostPort(const std::string& address);

// And back: brackets around an IPv6 address.
std::string JoinHostPort(const std::string& host, int port);

// "localhost", 127.0.0.0/8 and ::1.  Other names are not looked up.
bool IsLoopback(const std::string& host);

// Where HTTP shall listen.
// Errors: InvalidArgument   as ParseHostPort()
//         PermissionDenied  off loopback, where anybody may read, and not
//                           `allowed`
absl::StatusOr<HostPort> ParseHttpAddress(const std::string& address,
                                          bool allowed);

}  // namespace paceline
