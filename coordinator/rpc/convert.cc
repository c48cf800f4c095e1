#include "coordinator/rpc/convert.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "coordinator/drift.h"
#include "core/base/host_port.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert.h"
#include "core/rpc/group_convert.h"
#include "core/rpc/measurement_convert.h"
#include "core/rpc/report_convert.h"
#include "core/rpc/status.h"

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

// A loopback address is of use on this machine only: whoever dials it from
// another one reaches itself.
absl::Status CheckReach(const Registration& worker, const std::string& peer) {
  const absl::StatusOr<HostPort> at = ParseHostPort(worker.address);
  const absl::StatusOr<HostPort> from =
      ParseHostPort(absl::StrCat(HostOfPeer(peer), ":0"));
  if (!at.ok() || !from.ok() || !IsLoopback(at->host) ||
      IsThisMachine(from->host)) {
    return absl::OkStatus();
  }
  const std::string reachable = JoinHostPort(from->host, at->port);
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", worker.name, " attaches from ", from->host,
      " but gives its address as ", worker.address,
      ", where no other machine reaches it: start it with --listen ", reachable,
      ", or where others reach it at another address, with --advertise "
      "HOST:PORT too"));
}

v1::WorkerState StateOf(const WorkerView& view) {
  switch (view.member.state) {
    case MemberState::kLive:
      if (view.job.assigned()) return v1::WORKER_STATE_BUSY;
      return view.measuring ? v1::WORKER_STATE_MEASURING
                            : v1::WORKER_STATE_IDLE;
    case MemberState::kSuspect:
      return v1::WORKER_STATE_SUSPECT;
    case MemberState::kLost:
      return v1::WORKER_STATE_LOST;
    case MemberState::kStopped:
      return v1::WORKER_STATE_STOPPED;
  }
  return v1::WORKER_STATE_UNSPECIFIED;
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

absl::StatusOr<Registration> FromProto(const v1::Registration& proto,
                                       const std::string& peer) {
  if (proto.protocol_version() != kProtocolVersion) {
    const bool older = proto.protocol_version() < kProtocolVersion;
    return absl::UnimplementedError(absl::StrCat(
        "protocol version: the worker has ", proto.protocol_version(),
        ", this coordinator ", kProtocolVersion, "; update the ",
        older ? "worker" : "coordinator"));
  }
  Registration registration = FromProto(proto);
  registration.address = WithHost(proto.address(), peer);
  registration.http_address = WithHost(proto.http_address(), peer);
  PACELINE_RETURN_IF_ERROR(CheckRegistration(registration));
  PACELINE_RETURN_IF_ERROR(CheckReach(registration, peer));
  return registration;
}

absl::StatusOr<Heartbeat> FromProto(const v1::Heartbeat& proto) {
  Heartbeat heartbeat;
  heartbeat.sequence = proto.sequence();
  heartbeat.progress = proto.progress();
  heartbeat.restarting = proto.restarting();
  heartbeat.stopping = proto.stopping();
  if (proto.has_run()) {
    PACELINE_ASSIGN_OR_RETURN(heartbeat.run, FromProto(proto.run()));
  }
  for (const v1::StepRecord& step : proto.steps()) {
    PACELINE_ASSIGN_OR_RETURN(heartbeat.steps.emplace_back(), FromProto(step));
  }
  for (const v1::EvaluationRecord& evaluation : proto.evaluations()) {
    PACELINE_ASSIGN_OR_RETURN(heartbeat.evaluations.emplace_back(),
                              FromProto(evaluation));
  }
  for (const v1::LogLine& line : proto.logs()) {
    heartbeat.logs.push_back(FromProto(line));
  }
  for (const v1::RoundRecord& round : proto.rounds()) {
    PACELINE_ASSIGN_OR_RETURN(heartbeat.rounds.emplace_back(),
                              FromProto(round));
  }
  if (proto.has_measurement()) {
    PACELINE_ASSIGN_OR_RETURN(heartbeat.measurement,
                              FromProto(proto.measurement()));
  }
  return heartbeat;
}

v1::Welcome ToProto(const WelcomeInfo& welcome) {
  v1::Welcome proto;
  proto.set_worker_id(welcome.worker.value);
  proto.set_heartbeat_period_ms(
      absl::ToInt64Milliseconds(welcome.heartbeat_period));
  proto.set_lease_ms(absl::ToInt64Milliseconds(welcome.lease));
  return proto;
}

v1::StandingOrder ToProto(const StandingOrder& order) {
  v1::StandingOrder proto;
  if (order.run.has_value()) *proto.mutable_run() = ToProto(*order.run);
  if (order.measure.has_value()) {
    *proto.mutable_measure() = ToProto(*order.measure);
  }
  proto.set_renew(order.renew);
  return proto;
}

WeightsPiece FromProto(v1::WeightsPiece proto) {
  WeightsPiece piece;
  piece.fence = {JobId{proto.job()}, proto.attempt(), proto.plan_version()};
  piece.tensor = std::move(*proto.mutable_tensor());
  piece.offset_bytes = proto.offset_bytes();
  piece.data = std::move(*proto.mutable_data());
  return piece;
}

namespace {

void AddDrift(const JobRecord& record, v1::Job& proto) {
  for (const StageDrift& drift : DriftOf(record)) {
    v1::StageDrift& into = *proto.add_drift();
    into.set_stage(drift.stage);
    into.set_worker_id(drift.worker.value);
    into.set_predicted_seconds(drift.predicted_seconds);
    into.set_measured_seconds(drift.measured_seconds);
    into.set_layer_seconds(drift.layer_seconds);
  }
  for (const StageTime& time : record.stage_times) {
    if (time.updates > 0) *proto.add_versions() = VersionsToProto(time);
  }
  proto.set_step_seconds(MeasuredStepSeconds(record));
}

}  // namespace

v1::SubmitJobResponse ToProto(const Submission& submission) {
  v1::SubmitJobResponse proto;
  proto.set_id(submission.job.id.value);
  for (const StagePlacement& stage : submission.stages) {
    *proto.add_stages() = ToProto(stage);
  }
  for (const std::string& note : submission.notes) proto.add_notes(note);
  if (submission.estimate.has_value()) {
    *proto.mutable_estimate() = ToProto(*submission.estimate);
  }
  return proto;
}

v1::Job ToProto(const JobView& view) {
  v1::Job proto = ToProto(view.record);
  for (v1::JobWorker& part : *proto.mutable_workers()) {
    const WorkerId worker{part.id()};
    if (const auto said = view.sayings.find(worker);
        said != view.sayings.end()) {
      v1::JobMember& member = *part.mutable_member();
      member.set_view(ViewText(said->second.view));
      member.set_next(said->second.next);
      member.set_state_step(said->second.state_step);
      member.set_state_hash(said->second.state_hash);
      member.set_listens(said->second.listens);
    }
    for (const StagePlacement& stage : view.stages) {
      if (stage.worker == worker) *part.add_stages() = ToProto(stage);
    }
  }
  proto.set_samples_per_second(view.samples_per_second);
  proto.set_phase(view.phase);
  AddDrift(view.record, proto);
  return proto;
}

v1::Job ToProto(const JobDetails& details) {
  v1::Job proto = ToProto(details.view);
  for (const StepRecord& step : details.curve) {
    *proto.add_curve() = ToProto(step);
  }
  for (const EvaluationRecord& evaluation : details.evaluations) {
    *proto.add_evaluations() = ToProto(evaluation);
  }
  return proto;
}

v1::Worker ToProto(const WorkerView& view) {
  v1::Worker proto;
  proto.set_id(view.member.id.value);
  *proto.mutable_registration() = ToProto(view.member.registration);
  proto.set_state(StateOf(view));
  proto.set_job(view.job.assigned() ? view.job.value : 0);
  for (const int32_t stage : view.stages) proto.add_stages(stage);
  proto.set_last_heard_seconds(absl::ToDoubleSeconds(view.last_heard));
  proto.set_drained(view.drained);
  return proto;
}

v1::GetProfileResponse ToProto(const ProfileView& view) {
  v1::GetProfileResponse proto;
  for (const DeviceProfile& profile : view.profiles) {
    *proto.add_profiles() = ToProto(profile);
  }
  for (const LinkMeasurement& link : view.links) {
    *proto.add_links() = ToProto(link);
  }
  for (const std::string& waiting : view.waiting) proto.add_waiting(waiting);
  for (const std::string& failed : view.failed) proto.add_failed(failed);
  if (view.script.has_value()) *proto.mutable_script() = ToProto(*view.script);
  return proto;
}

v1::ListMeasurementsResponse ToProto(const StoredMeasurements& measurements) {
  v1::ListMeasurementsResponse proto;
  for (const auto& [key, profile] : measurements.profiles) {
    *proto.add_profiles() = ToProto(profile);
  }
  for (const auto& [ends, link] : measurements.links) {
    *proto.add_links() = ToProto(link);
  }
  return proto;
}

}  // namespace paceline
