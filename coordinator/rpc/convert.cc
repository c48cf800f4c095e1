#include "coordinator/rpc/convert.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert.h"

namespace paceline {
namespace {

// A line that is longer says nothing more to a person.
constexpr size_t kMaxTextBytes = 8192;

// At most kMaxTextBytes of `text` on one line, cut between two characters: what
// is no UTF-8 could not be sent on.
std::string OneLine(const std::string& text) {
  size_t bytes = std::min(text.size(), kMaxTextBytes);
  while (bytes > 0 && bytes < text.size() &&
         (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) {
    --bytes;
  }
  std::string line = text.substr(0, bytes);
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

std::string WithHost(const std::string& address, const std::string& peer) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return address;
  const std::string host = address.substr(0, colon);
  if (!host.empty() && host != "0.0.0.0" && host != "[::]") return address;
  return HostOfPeer(peer) + address.substr(colon);
}

TimeSplit FromProto(const v1::TimeSplit& proto) {
  TimeSplit seconds;
  seconds.forward = proto.forward();
  seconds.backward = proto.backward();
  seconds.send = proto.send();
  seconds.receive_wait = proto.receive_wait();
  seconds.aggregate = proto.aggregate();
  seconds.optimizer = proto.optimizer();
  seconds.snapshot = proto.snapshot();
  seconds.data = proto.data();
  seconds.orders = proto.orders();
  seconds.unexplained = proto.unexplained();
  seconds.wall = proto.wall();
  return seconds;
}

v1::TimeSplit ToProto(const TimeSplit& seconds) {
  v1::TimeSplit proto;
  proto.set_forward(seconds.forward);
  proto.set_backward(seconds.backward);
  proto.set_send(seconds.send);
  proto.set_receive_wait(seconds.receive_wait);
  proto.set_aggregate(seconds.aggregate);
  proto.set_optimizer(seconds.optimizer);
  proto.set_snapshot(seconds.snapshot);
  proto.set_data(seconds.data);
  proto.set_orders(seconds.orders);
  proto.set_unexplained(seconds.unexplained);
  proto.set_wall(seconds.wall);
  return proto;
}

absl::StatusOr<RunReport> FromProto(const v1::RunState& proto) {
  if (proto.phase() <= 0 || proto.phase() >= kRunPhases) {
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat: phase ", static_cast<int>(proto.phase()),
                     " does not exist"));
  }
  if (proto.job() < 1 || proto.step() < 0 || proto.steps() < 0 ||
      proto.error_code() < 0 || proto.error_code() > 16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "heartbeat: job, step, steps or error_code is out of range: ",
        proto.job(), ", ", proto.step(), ", ", proto.steps(), ", ",
        proto.error_code()));
  }
  RunReport report;
  report.fence = {JobId{proto.job()}, proto.attempt(), proto.plan_version()};
  report.phase = static_cast<RunPhase>(proto.phase());
  report.step = proto.step();
  report.steps = proto.steps();
  report.seconds = FromProto(proto.seconds());
  if (report.phase == RunPhase::kFailed) {
    const auto code = static_cast<absl::StatusCode>(proto.error_code());
    report.error = absl::Status(
        code == absl::StatusCode::kOk ? absl::StatusCode::kInternal : code,
        proto.error_message().empty() ? "no reason was given"
                                      : OneLine(proto.error_message()));
  }
  return report;
}

v1::StepRecord ToProto(const StepRecord& step) {
  v1::StepRecord proto;
  proto.set_step(step.step);
  proto.set_loss(step.loss);
  proto.set_samples(step.samples);
  proto.set_learning_rate(step.learning_rate);
  proto.set_gradient_norm(step.gradient_norm);
  proto.set_skipped(step.skipped);
  proto.set_unix_ms(step.unix_ms);
  return proto;
}

v1::EvaluationRecord ToProto(const EvaluationRecord& evaluation) {
  v1::EvaluationRecord proto;
  proto.set_step(evaluation.step);
  proto.set_loss(evaluation.loss);
  proto.set_accuracy(evaluation.accuracy);
  proto.set_samples(evaluation.samples);
  return proto;
}

v1::WorkerState StateOf(const WorkerView& view) {
  switch (view.member.state) {
    case MemberState::kLive:
      return view.job.assigned() ? v1::WORKER_STATE_BUSY
                                 : v1::WORKER_STATE_IDLE;
    case MemberState::kSuspect:
      return v1::WORKER_STATE_SUSPECT;
    case MemberState::kLost:
      return v1::WORKER_STATE_LOST;
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
  Registration registration;
  registration.name = proto.name();
  registration.machine_id = proto.machine_id();
  registration.incarnation = {proto.incarnation()};
  registration.address = WithHost(proto.address(), peer);
  registration.http_address = WithHost(proto.http_address(), peer);
  registration.pid = proto.pid();
  registration.cpu_capability = proto.cpu_capability();
  registration.cpu_model = proto.cpu_model();
  registration.architecture = proto.architecture();
  registration.memory_bytes = proto.memory_bytes();
  registration.cores = proto.cores();
  registration.version = proto.version();
  PACELINE_RETURN_IF_ERROR(CheckRegistration(registration));
  return registration;
}

v1::Registration ToProto(const Registration& registration) {
  v1::Registration proto;
  proto.set_protocol_version(kProtocolVersion);
  proto.set_name(registration.name);
  proto.set_machine_id(registration.machine_id);
  proto.set_incarnation(registration.incarnation.value);
  proto.set_address(registration.address);
  proto.set_http_address(registration.http_address);
  proto.set_pid(registration.pid);
  proto.set_cpu_capability(registration.cpu_capability);
  proto.set_cpu_model(registration.cpu_model);
  proto.set_architecture(registration.architecture);
  proto.set_memory_bytes(registration.memory_bytes);
  proto.set_cores(registration.cores);
  proto.set_version(registration.version);
  return proto;
}

absl::StatusOr<Heartbeat> FromProto(v1::Heartbeat proto) {
  Heartbeat heartbeat;
  heartbeat.sequence = proto.sequence();
  heartbeat.progress = proto.progress();
  if (proto.has_run()) {
    PACELINE_ASSIGN_OR_RETURN(heartbeat.run, FromProto(proto.run()));
  }
  for (const v1::StepRecord& step : proto.steps()) {
    if (step.step() < 1 || step.samples() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("heartbeat: record of step ", step.step(), " with ",
                       step.samples(), " samples"));
    }
    heartbeat.steps.push_back({step.step(), step.loss(), step.samples(),
                               step.learning_rate(), step.gradient_norm(),
                               step.skipped(), step.unix_ms()});
  }
  for (const v1::EvaluationRecord& evaluation : proto.evaluations()) {
    if (evaluation.step() < 0 || evaluation.samples() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("heartbeat: evaluation after step ", evaluation.step(),
                       " with ", evaluation.samples(), " samples"));
    }
    heartbeat.evaluations.push_back({evaluation.step(), evaluation.loss(),
                                     evaluation.accuracy(),
                                     evaluation.samples()});
  }
  for (const v1::LogLine& line : proto.logs()) {
    heartbeat.logs.push_back(
        {0, line.unix_ms(), OneLine(line.level()), "", OneLine(line.text())});
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

v1::StagePlacement ToProto(const StagePlacement& stage) {
  v1::StagePlacement proto;
  proto.set_stage(stage.stage);
  proto.set_first_layer(stage.layers.first);
  proto.set_last_layer(stage.layers.last);
  proto.set_worker_id(stage.worker.value);
  proto.set_worker_name(stage.worker_name);
  proto.set_address(stage.address);
  return proto;
}

v1::StandingOrder ToProto(const StandingOrder& order) {
  v1::StandingOrder proto;
  if (!order.run.has_value()) return proto;
  v1::RunOrder& run = *proto.mutable_run();
  run.set_job(order.run->fence.job.value);
  run.set_attempt(order.run->fence.attempt);
  run.set_plan_version(order.run->fence.plan_version);
  run.set_restore_step(order.run->restore_step);
  *run.mutable_spec() = ToProto(order.run->spec);
  for (const StagePlacement& stage : order.run->stages) {
    *run.add_stages() = ToProto(stage);
  }
  run.set_cpu_capability(order.run->cpu_capability);
  run.set_threads(order.run->threads);
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

v1::SubmitJobResponse ToProto(const Submission& submission) {
  v1::SubmitJobResponse proto;
  proto.set_id(submission.job.id.value);
  for (const StagePlacement& stage : submission.stages) {
    *proto.add_stages() = ToProto(stage);
  }
  for (const std::string& note : submission.notes) proto.add_notes(note);
  return proto;
}

v1::Job ToProto(const JobView& view) {
  const JobRecord& record = view.record;
  v1::Job proto;
  proto.set_id(record.id.value);
  *proto.mutable_spec() = ToProto(record.spec);
  proto.set_state(static_cast<v1::JobState>(record.state));
  proto.set_why(record.why);
  proto.set_step(record.step);
  proto.set_steps(record.steps);
  proto.set_weights_path(record.weights_path);
  proto.set_weights_sha256(record.weights_sha256);
  proto.set_threads(record.threads);
  proto.set_cpu_capability(record.cpu_capability);
  for (const JobWorker& worker : record.workers) {
    v1::JobWorker& part = *proto.add_workers();
    part.set_id(worker.id.value);
    part.set_name(worker.name);
    *part.mutable_seconds() = ToProto(worker.seconds);
    for (const StagePlacement& stage : view.stages) {
      if (stage.worker == worker.id) *part.add_stages() = ToProto(stage);
    }
  }
  proto.set_submitted_unix_ms(record.submitted_unix_ms);
  proto.set_started_unix_ms(record.started_unix_ms);
  proto.set_ended_unix_ms(record.ended_unix_ms);
  proto.set_attempt(record.attempt);
  proto.set_plan_version(record.plan_version);
  proto.set_samples_per_second(view.samples_per_second);
  proto.set_phase(view.phase);
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

v1::JobEvent ToProto(const EventRecord& event) {
  v1::JobEvent proto;
  proto.set_sequence(event.sequence);
  proto.set_unix_ms(event.unix_ms);
  proto.set_kind(event.kind);
  proto.set_text(event.text);
  return proto;
}

v1::LogLine ToProto(const LogRecord& line) {
  v1::LogLine proto;
  proto.set_unix_ms(line.unix_ms);
  proto.set_level(line.level);
  proto.set_source(line.source);
  proto.set_text(line.text);
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
  return proto;
}

SpecCodec ProtoSpecCodec() {
  SpecCodec codec;
  codec.encode = [](const JobSpec& spec) {
    return ToProto(spec).SerializeAsString();
  };
  codec.decode = [](const std::string& bytes) -> absl::StatusOr<JobSpec> {
    v1::JobSpec proto;
    if (!proto.ParseFromString(bytes)) {
      return absl::DataLossError("its spec is no JobSpec message");
    }
    return FromProto(proto);
  };
  return codec;
}

}  // namespace paceline
