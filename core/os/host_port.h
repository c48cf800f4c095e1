// Addresses as people write them: HOST:PORT.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

// --- the names by which an HTTP port is called ---

// Returns whether a request calls this machine by one of its own names.
//
// A stranger's page can have its own name looked up as this machine's address
// (DNS rebinding).  The reader's browser would then give the page whatever this
// machine serves, but the browser sends the name.  So only names count that no
// stranger can have: addresses, "localhost", this machine's names, with domain
// and with ".local", and `given`.
//   authority  as the header Host has it: "pi-1.local:7480", "[::1]"
// Does not wait for the resolver, which is asked for the domain at most once a
// minute: until it has answered, the name with the domain does not count.
bool IsOwnHost(const std::string& authority,
               const std::vector<std::string>& given);

// Asks for the domain, so that the first IsOwnHost() can know it.
void AskForDomain();

// --- finds a coordinator on the local network by Avahi (mDNS, DNS-SD) ---

// Stands in place of HOST:PORT for "the only one there is".
inline constexpr char kAutoCoordinator[] = "auto";

// The HOST:PORT of the only coordinator in what 'avahi-browse -rtp' prints.
// One that is seen on several interfaces counts once, with its first IPv4
// address.
// Errors: NotFound            there is none
//         FailedPrecondition  there are several; the message lists them
absl::StatusOr<std::string> OnlyCoordinator(absl::string_view browsed);

// `coordinator` itself; for kAutoCoordinator asks the program avahi-browse,
// which takes about a second.
// vouched: a certificate or a token says whose answer is believed.
// Errors: as OnlyCoordinator()
//         InvalidArgument  kAutoCoordinator, and nobody vouches
//         Unavailable      avahi-browse is missing, or its daemon does not run
absl::StatusOr<std::string> FindCoordinator(const std::string& coordinator,
                                            bool vouched);

}  // namespace paceline
