#include "coordinator/rpc/convert.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/version.h"
#include "core/cluster/registration.h"
#include "core/os/host_port.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"

namespace paceline {
namespace {

std::string WithHost(const std::string& address, const std::string& peer) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return address;
  const std::string host = address.substr(0, colon);
  if (!host.empty() && host != "0.0.0.0" && host != "[::]") return address;
  return HostOfPeer(peer) + address.substr(colon);
}

// Whether `host` is an address of this machine.
bool IsThisMachine(const std::string& host) {
  ifaddrs* all = nullptr;
  if (host.empty() || IsLoopback(host) || getifaddrs(&all) != 0) return true;
  bool found = false;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size =
        family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST] = {};
    found = found || (getnameinfo(one->ifa_addr, size, text, sizeof(text),
                                  nullptr, 0, NI_NUMERICHOST) == 0 &&
                      host == text);
  }
  freeifaddrs(all);
  return found;
}

// A loopback address works on this machine only: another machine that dials it
// reaches itself.
absl::Status CheckReach(const v1::Registration& worker,
                        const std::string& peer) {
  const absl::StatusOr<HostPort> at = ParseHostPort(worker.address());
  const absl::StatusOr<HostPort> from =
      ParseHostPort(absl::StrCat(HostOfPeer(peer), ":0"));
  if (!at.ok() || !from.ok() || !IsLoopback(at->host) ||
      IsThisMachine(from->host)) {
    return absl::OkStatus();
  }
  const std::string reachable = JoinHostPort(from->host, at->port);
  return InvalidArgument(
      "worker ", worker.name(), " attaches from ", from->host,
      " but gives its address as ", worker.address(),
      ", where no other machine reaches it: start it with --listen ", reachable,
      ", or where others reach it at another address, with --advertise "
      "HOST:PORT too");
}

}  // namespace

std::string HostOfPeer(const std::string& peer) {
  const std::string plain =
      absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  absl::string_view rest = plain;
  if (!absl::ConsumePrefix(&rest, "ipv4:") &&
      !absl::ConsumePrefix(&rest, "ipv6:")) {
    return "";
  }
  const size_t colon = rest.rfind(':');
  return std::string(rest.substr(0, colon));
}

absl::Status CheckProtocol(int spoken, int oldest, int newest) {
  spoken = std::max(1, spoken);
  if (spoken >= oldest && spoken <= newest) return absl::OkStatus();
  return Unimplemented(
      "the worker speaks protocol ", spoken, ", this coordinator (paceline ",
      kVersion, ") ", oldest == newest ? "" : absl::StrCat(oldest, " to "),
      newest, ": upgrade the ", spoken > newest ? "coordinator" : "worker");
}

absl::Status TakeRegistration(const std::string& peer,
                              v1::Registration& worker) {
  PACELINE_RETURN_IF_ERROR(CheckProtocol(worker.protocol_version(),
                                         kOldestProtocol, kProtocolVersion));
  worker.set_address(WithHost(worker.address(), peer));
  worker.set_http_address(WithHost(worker.http_address(), peer));
  PACELINE_RETURN_IF_ERROR(CheckRegistration(worker));
  return CheckReach(worker, peer);
}

absl::StatusOr<WorkerReport> FromProto(v1::Heartbeat heartbeat) {
  PACELINE_RETURN_IF_ERROR(CheckHeartbeat(heartbeat));
  WorkerReport report;
  if (heartbeat.run().has_member()) {
    PACELINE_ASSIGN_OR_RETURN(report.member,
                              FromProto(heartbeat.run().member()));
  }
  if (heartbeat.has_measurement()) {
    PACELINE_RETURN_IF_ERROR(CheckMeasurement(heartbeat.measurement()));
  }
  report.heartbeat = std::move(heartbeat);
  return report;
}

v1::StandingOrder ToProto(const StandingOrder& order) {
  v1::StandingOrder proto;
  if (order.run.has_value()) *proto.mutable_run() = ToProto(*order.run);
  if (order.measure.has_value()) *proto.mutable_measure() = *order.measure;
  proto.set_renew(order.renew);
  proto.set_settle(order.settle);
  proto.set_released(order.released);
  for (const auto& [holder, unix_ms] : order.revoked) {
    v1::RevokedHolder& each = *proto.add_revoked();
    each.set_holder(holder);
    each.set_unix_ms(unix_ms);
  }
  AddKeep(order.keep, proto);
  return proto;
}

}  // namespace paceline
