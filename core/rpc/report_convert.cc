#include "core/rpc/report_convert.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "core/cluster/flow_fields.h"
#include "core/rpc/convert.h"
#include "core/rpc/group_convert.h"
#include "core/rpc/member_convert.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// A line that is longer says nothing more to a person.
constexpr size_t kMaxTextBytes = 8192;

// Times and counts are for people: one that cannot be, which no worker of ours
// sends, is taken as 0, "not known".  To refuse it would end the worker's
// stream, and to keep it would bring the store numbers that it cannot.
double Usable(double seconds) {
  return std::isfinite(seconds) && seconds >= 0 ? seconds : 0;
}

int64_t Usable(int64_t count) {
  return count >= 0 && count <= kMaxCount ? count : 0;
}

// At most kMaxTextBytes of `text` on one line: what is no UTF-8 could not be
// sent on.
std::string OneLine(const std::string& text) {
  std::string line = ToUtf8(text, kMaxTextBytes);
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

}  // namespace

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

TimeSplit FromProto(const v1::TimeSplit& proto) {
  TimeSplit seconds;
  seconds.forward = Usable(proto.forward());
  seconds.backward = Usable(proto.backward());
  seconds.send = Usable(proto.send());
  seconds.receive_wait = Usable(proto.receive_wait());
  seconds.aggregate = Usable(proto.aggregate());
  seconds.optimizer = Usable(proto.optimizer());
  seconds.snapshot = Usable(proto.snapshot());
  seconds.data = Usable(proto.data());
  seconds.orders = Usable(proto.orders());
  // What is left over may be a little below none.
  seconds.unexplained =
      std::isfinite(proto.unexplained()) ? proto.unexplained() : 0;
  seconds.wall = Usable(proto.wall());
  return seconds;
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

absl::StatusOr<StepRecord> FromProto(const v1::StepRecord& proto) {
  if (proto.step() < 1 || proto.samples() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "record of step ", proto.step(), " with ", proto.samples(), " samples",
        ": need a step of at least 1 and samples of at least 0"));
  }
  StepRecord step;
  step.step = proto.step();
  step.loss = proto.loss();
  step.samples = proto.samples();
  step.learning_rate = proto.learning_rate();
  step.gradient_norm = proto.gradient_norm();
  step.skipped = proto.skipped();
  step.unix_ms = proto.unix_ms();
  return step;
}

v1::EvaluationRecord ToProto(const EvaluationRecord& evaluation) {
  v1::EvaluationRecord proto;
  proto.set_step(evaluation.step);
  proto.set_loss(evaluation.loss);
  proto.set_accuracy(evaluation.accuracy);
  proto.set_samples(evaluation.samples);
  return proto;
}

absl::StatusOr<EvaluationRecord> FromProto(const v1::EvaluationRecord& proto) {
  if (proto.step() < 0 || proto.samples() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation after step ", proto.step(), " with ",
                     proto.samples(), " samples: need neither below 0"));
  }
  EvaluationRecord evaluation;
  evaluation.step = proto.step();
  evaluation.loss = proto.loss();
  evaluation.accuracy = proto.accuracy();
  evaluation.samples = proto.samples();
  return evaluation;
}

v1::LogLine ToProto(const LogRecord& line) {
  v1::LogLine proto;
  proto.set_unix_ms(line.unix_ms);
  proto.set_level(line.level);
  proto.set_source(line.source);
  proto.set_text(ToUtf8(line.text, kMaxTextBytes));
  proto.set_sequence(line.origin_sequence);
  return proto;
}

LogRecord FromProto(const v1::LogLine& proto) {
  LogRecord line;
  line.unix_ms = proto.unix_ms();
  line.level = OneLine(proto.level());
  line.source = OneLine(proto.source());
  line.text = OneLine(proto.text());
  line.origin_sequence = proto.sequence();
  return line;
}

v1::StageVersions VersionsToProto(const StageTime& time) {
  v1::StageVersions proto;
  proto.set_stage(time.stage);
  proto.set_updates(time.updates);
  proto.set_skipped_updates(time.skipped_updates);
  proto.set_staleness(time.staleness);
  proto.set_versions(time.versions);
  proto.set_version_bytes(time.version_bytes);
  return proto;
}

v1::StageTime ToProto(const StageTime& time) {
  v1::StageTime proto;
  proto.set_stage(time.stage);
  proto.set_seconds(time.seconds);
  proto.set_micro_batches(time.micro_batches);
  if (time.updates > 0) *proto.mutable_versions() = VersionsToProto(time);
  return proto;
}

StageTime FromProto(const v1::StageTime& proto) {
  const v1::StageVersions& versions = proto.versions();
  return {.stage = proto.stage(),
          .seconds = Usable(proto.seconds()),
          .micro_batches = Usable(proto.micro_batches()),
          .updates = Usable(versions.updates()),
          .skipped_updates = Usable(versions.skipped_updates()),
          .staleness = Usable(versions.staleness()),
          .versions = versions.versions(),
          .version_bytes = Usable(versions.version_bytes())};
}

v1::FlowTimes ToProto(const FlowTimes& flow) {
  v1::FlowTimes proto;
  proto.set_micro_batches(flow.micro_batches);
  proto.set_samples(flow.samples);
  proto.set_first_unix_us(flow.first_unix_us);
  proto.set_last_unix_us(flow.last_unix_us);
  proto.set_compute(flow.compute);
  proto.set_compute_cpu(flow.compute_cpu);
  proto.set_other_cpu(flow.other_cpu);
  proto.set_starved(flow.starved);
  proto.set_in_flight(flow.in_flight);
  proto.set_blocked(flow.blocked);
  proto.set_data(flow.data);
  proto.set_latency_p50(flow.latency_p50);
  proto.set_latency_p99(flow.latency_p99);
  proto.set_latency_max(flow.latency_max);
  proto.set_fill(flow.fill);
  proto.set_update(flow.update);
  proto.set_seconds(flow.seconds);
  proto.set_labels(flow.labels);
  proto.set_correct(flow.correct);
  proto.set_loss(flow.loss);
  return proto;
}

FlowTimes FromProto(const v1::FlowTimes& proto) {
  FlowTimes flow;
  flow.micro_batches = proto.micro_batches();
  flow.samples = proto.samples();
  flow.first_unix_us = proto.first_unix_us();
  flow.last_unix_us = proto.last_unix_us();
  flow.compute = proto.compute();
  flow.compute_cpu = proto.compute_cpu();
  flow.other_cpu = proto.other_cpu();
  flow.starved = proto.starved();
  flow.in_flight = proto.in_flight();
  flow.blocked = proto.blocked();
  flow.data = proto.data();
  flow.latency_p50 = proto.latency_p50();
  flow.latency_p99 = proto.latency_p99();
  flow.latency_max = proto.latency_max();
  flow.fill = proto.fill();
  flow.update = proto.update();
  flow.seconds = proto.seconds();
  flow.labels = proto.labels();
  flow.correct = proto.correct();
  flow.loss = proto.loss();
  ForEachFlowField(flow, [](absl::string_view name, auto& value) {
    // A model may well have a loss that is no number.
    if (name != "loss") value = Usable(value);
  });
  return flow;
}

v1::RunState ToProto(const RunReport& report) {
  v1::RunState proto;
  proto.set_job(report.fence.job.value);
  proto.set_attempt(report.fence.attempt);
  proto.set_plan_version(report.fence.plan_version);
  proto.set_phase(static_cast<v1::RunState::Phase>(report.phase));
  proto.set_step(report.step);
  proto.set_steps(report.steps);
  proto.set_samples(report.samples);
  proto.set_error_code(static_cast<int>(report.error.code()));
  for (const StageTime& time : report.stage_times) {
    *proto.add_stage_times() = ToProto(time);
  }
  proto.set_step_seconds(report.step_seconds);
  proto.set_timed_steps(report.timed_steps);
  if (report.flow.has_value()) *proto.mutable_flow() = ToProto(*report.flow);
  proto.set_total_samples(report.total_samples);
  proto.set_peak_memory_bytes(report.peak_memory_bytes);
  proto.set_unreadable_samples(report.unreadable_samples);
  // With names of files, which may be any bytes.
  proto.set_error_message(
      ToUtf8(report.error.message(), kMaxStatusMessageBytes));
  *proto.mutable_seconds() = ToProto(report.seconds);
  if (report.member.has_value()) {
    *proto.mutable_member() = ToProto(*report.member);
  }
  return proto;
}

absl::StatusOr<RunReport> FromProto(const v1::RunState& proto) {
  if (proto.phase() <= 0 || proto.phase() >= kRunPhases) {
    return absl::InvalidArgumentError(
        absl::StrCat("run state: phase ", static_cast<int>(proto.phase()),
                     " does not exist, need 1 to ", kRunPhases - 1));
  }
  if (proto.job() < 1 || proto.step() < 0 || proto.steps() < 0 ||
      proto.samples() < 0 || proto.total_samples() < 0 ||
      proto.error_code() < 0 || proto.error_code() > 16 ||
      proto.peak_memory_bytes() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "run state: job, step, steps, samples, total_samples, error_code or "
        "peak_memory_bytes is out of range: ",
        proto.job(), ", ", proto.step(), ", ", proto.steps(), ", ",
        proto.samples(), ", ", proto.total_samples(), ", ", proto.error_code(),
        ", ", proto.peak_memory_bytes()));
  }
  RunReport report;
  report.fence = {JobId{proto.job()}, proto.attempt(), proto.plan_version()};
  report.phase = static_cast<RunPhase>(proto.phase());
  report.step = proto.step();
  report.steps = proto.steps();
  report.samples = proto.samples();
  report.seconds = FromProto(proto.seconds());
  for (const v1::StageTime& time : proto.stage_times()) {
    report.stage_times.push_back(FromProto(time));
  }
  report.step_seconds = Usable(proto.step_seconds());
  report.timed_steps = Usable(proto.timed_steps());
  if (proto.has_flow()) report.flow = FromProto(proto.flow());
  report.total_samples = proto.total_samples();
  report.peak_memory_bytes = proto.peak_memory_bytes();
  report.unreadable_samples = Usable(proto.unreadable_samples());
  if (proto.has_member()) {
    PACELINE_ASSIGN_OR_RETURN(report.member, FromProto(proto.member()));
  }
  if (report.phase == RunPhase::kFailed) {
    const auto code = static_cast<absl::StatusCode>(proto.error_code());
    report.error = absl::Status(
        code == absl::StatusCode::kOk ? absl::StatusCode::kInternal : code,
        proto.error_message().empty() ? "no reason was given"
                                      : OneLine(proto.error_message()));
  }
  return report;
}

v1::StagePlacement ToProto(const StagePlacement& stage) {
  v1::StagePlacement proto;
  proto.set_stage(stage.stage);
  proto.set_first_layer(stage.layers.first);
  proto.set_last_layer(stage.layers.last);
  proto.set_worker_id(stage.worker.value);
  proto.set_worker_name(stage.worker_name);
  proto.set_address(stage.address);
  proto.set_share(stage.share);
  return proto;
}

StagePlacement FromProto(const v1::StagePlacement& proto) {
  StagePlacement stage;
  stage.stage = proto.stage();
  stage.layers = {proto.first_layer(), proto.last_layer()};
  stage.worker = WorkerId{proto.worker_id()};
  stage.worker_name = proto.worker_name();
  stage.address = proto.address();
  stage.share = proto.share();
  return stage;
}

v1::RunOrder ToProto(const RunOrder& order) {
  v1::RunOrder proto;
  proto.set_job(order.fence.job.value);
  proto.set_attempt(order.fence.attempt);
  proto.set_plan_version(order.fence.plan_version);
  proto.set_restore_step(order.restore_step);
  *proto.mutable_spec() = ToProto(order.spec);
  for (const StagePlacement& stage : order.stages) {
    *proto.add_stages() = ToProto(stage);
  }
  proto.set_cpu_capability(order.cpu_capability);
  proto.set_threads(order.threads);
  for (const RouteTable& route : order.routes) {
    v1::StageRoute& into = *proto.add_routes();
    for (const int turn : route.turns()) into.add_turns(turn);
  }
  if (order.group.has_value()) *proto.mutable_group() = ToProto(*order.group);
  return proto;
}

absl::StatusOr<RunOrder> FromProto(const v1::RunOrder& proto) {
  RunOrder order;
  order.fence = {JobId{proto.job()}, proto.attempt(), proto.plan_version()};
  order.restore_step = proto.restore_step();
  order.spec = FromProto(proto.spec());
  for (const v1::StagePlacement& stage : proto.stages()) {
    const int next = StageCount(order);
    if (stage.stage() != next &&
        (order.stages.empty() || stage.stage() != next - 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("order: stage ", stage.stage(), " stands where stage ",
                       next, " comes next"));
    }
    order.stages.push_back(FromProto(stage));
  }
  order.cpu_capability = proto.cpu_capability();
  order.threads = proto.threads();
  for (const v1::StageRoute& route : proto.routes()) {
    order.routes.emplace_back(
        std::vector<int>(route.turns().begin(), route.turns().end()));
  }
  if (proto.has_group()) {
    PACELINE_ASSIGN_OR_RETURN(order.group, FromProto(proto.group()));
  }
  return order;
}

}  // namespace paceline
