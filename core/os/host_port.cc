#include "core/os/host_port.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/os/thread.h"

namespace paceline {
namespace {

absl::Status BadAddress(const std::string& address, absl::string_view why) {
  constexpr size_t kMostBytes = 80;  // of what is repeated
  return InvalidArgument("'", ToUtf8(address, kMostBytes),
                         "' is not HOST:PORT: ", why, ", as in 127.0.0.1:7400");
}

// Digits only: neither "+1" nor " 1" is a port.
bool ParsePort(absl::string_view text, int* port) {
  return text.size() <= 5 && std::ranges::all_of(text, absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, port) && *port <= 65535;
}

// A scope ("fe80::1%eth0") is for getaddrinfo to judge.
bool IsIpv6(const std::string& host) {
  in6_addr parsed;
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &parsed) ==
         1;
}

constexpr char kGiveAddress[] = "name it with --coordinator HOST:PORT";
// Ends by itself when it has printed what the daemon knows.
constexpr char kBrowse[] =
    "exec timeout 10 avahi-browse -rtp _paceline._tcp 2>&1";

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
    if (!IsIpv6(host)) {
      return BadAddress(address, "an IPv6 address belongs into the brackets");
    }
  } else if (IsIpv6(host)) {
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
  return PermissionDenied(
      address,
      " is off loopback, where anybody may read it: add --http-tls (in the "
      "file: http-tls = true), or --http-insecure if its network is trusted");
}

// --- the names by which an HTTP port is called ---

namespace {

std::string Normal(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StripSuffix(name, "."));
}

bool IsAddress(const std::string& host) {
  in_addr v4;
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 || IsIpv6(host);
}

// This machine's name.
std::string OwnHost() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return Normal(name);
}

// This machine's name with its domain.  Thread-safe.
class FullName {
 public:
  // Returns the resolver's last answer; empty: it has not answered yet.  Asks
  // again when that is due, and does not wait: few threads call this, and any
  // client can make them call it.
  std::string Get() {
    absl::MutexLock lock(&mutex_);
    const int result = asked_ ? gai_error(&question_) : EAI_INPROGRESS;
    if (result != EAI_INPROGRESS) asked_ = false;
    if (result == 0) {
      const char* const name = question_.ar_result->ai_canonname;
      if (name != nullptr) name_ = Normal(name);
      freeaddrinfo(question_.ar_result);
    }
    const Instant now = SteadyNow();
    if (!asked_ && now >= due_) {
      due_ = now + kPeriod;
      host_ = OwnHost();
      question_ = {};
      question_.ar_name = host_.c_str();
      hints_.ai_flags = AI_CANONNAME;
      question_.ar_request = &hints_;
      gaicb* questions[] = {&question_};
      asked_ = getaddrinfo_a(GAI_NOWAIT, questions, 1, nullptr) == 0;
    }
    return name_;
  }

 private:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);

  absl::Mutex mutex_;
  std::string name_ ABSL_GUARDED_BY(mutex_);
  Instant due_ ABSL_GUARDED_BY(mutex_);
  // libc's thread reads these while the question is under way.
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  std::string host_ ABSL_GUARDED_BY(mutex_);
  addrinfo hints_ ABSL_GUARDED_BY(mutex_) = {};
  gaicb question_ ABSL_GUARDED_BY(mutex_) = {};
};

FullName& TheFullName() {
  // Never destroyed: libc may still write to it while the process ends.
  static auto* const name = new FullName;
  return *name;
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
  const std::string own = OwnHost();
  const std::string label = own.substr(0, own.find('.'));
  return IsAddress(host) || host == "localhost" || host == own ||
         host == label || host == label + ".local" ||
         std::ranges::any_of(given, is_host) ||
         (absl::StartsWith(host, label + ".") && host == TheFullName().Get());
}

void AskForDomain() { TheFullName().Get(); }

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
    return FailedPrecondition("Avahi finds several coordinators: ",
                              Joined(found, ", ",
                                     [](const auto& each) {
                                       const auto& [name, at] = each;
                                       return absl::StrCat(
                                           name, " (",
                                           JoinHostPort(at.host, at.port), ")");
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
