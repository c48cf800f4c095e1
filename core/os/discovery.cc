#include "core/os/discovery.h"

#include <cstdio>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"

namespace paceline {
namespace {

constexpr char kGiveAddress[] = "name it with --coordinator HOST:PORT";
// Ends by itself when it has printed what the daemon knows.
constexpr char kBrowse[] =
    "exec timeout 10 avahi-browse -rtp _paceline._tcp 2>&1";

}  // namespace

absl::StatusOr<std::string> OnlyCoordinator(absl::string_view browsed) {
  // A line: =;eth0;IPv4;NAME;_paceline._tcp;local;HOST;ADDRESS;PORT;TEXT
  std::map<std::string, HostPort> found;  // by host and port
  for (const absl::string_view line : absl::StrSplit(browsed, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, ';');
    int port = 0;
    if (fields.size() < 9 || fields[0] != "=" ||
        !absl::SimpleAtoi(fields[8], &port)) {
      continue;
    }
    const std::string& address = fields[7];
    // A link-local address needs the interface, which gRPC cannot be told.
    if (absl::StartsWith(address, "fe80:")) continue;
    HostPort& known = found[absl::StrCat(fields[6], ":", port)];
    const bool is_first_ipv4 =
        fields[2] == "IPv4" &&
        (known.host.empty() || absl::StrContains(known.host, ':'));
    if (known.host.empty() || is_first_ipv4) known = {address, port};
  }
  if (found.empty()) {
    return NotFound("Avahi finds no coordinator on this network: ",
                    kGiveAddress);
  }
  if (found.size() > 1) {
    return FailedPrecondition(
        "Avahi finds several coordinators: ",
        absl::StrJoin(found, ", ",
                      [](std::string* out, const auto& each) {
                        absl::StrAppend(
                            out, each.first, " (",
                            JoinHostPort(each.second.host, each.second.port),
                            ")");
                      }),
        ": ", kGiveAddress);
  }
  const HostPort& only = found.begin()->second;
  return JoinHostPort(only.host, only.port);
}

absl::StatusOr<std::string> FindCoordinator(const std::string& coordinator,
                                            bool vouched) {
  if (coordinator != kAutoCoordinator) return coordinator;
  if (!vouched) {
    return InvalidArgument(
        "--coordinator auto needs a certificate, since anybody may announce a "
        "coordinator: join with a token first, or ",
        kGiveAddress);
  }
  std::string browsed;
  FILE* const pipe = popen(kBrowse, "r");
  if (pipe == nullptr) return Unavailable("cannot start a shell");
  char part[4096];
  while (const size_t bytes = fread(part, 1, sizeof(part), pipe)) {
    browsed.append(part, bytes);
  }
  if (pclose(pipe) == 0) return OnlyCoordinator(browsed);
  return Unavailable(
      "cannot look for a coordinator: ", absl::StripSuffix(browsed, "\n"),
      " (the packages avahi-utils and avahi-daemon do that); ", kGiveAddress);
}

}  // namespace paceline
