#include "core/rpc/report_convert.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "core/rpc/convert.h"
#include "core/rpc/group_convert.h"
#include "core/rpc/member_convert.h"
#include "core/rpc/status.h"
#include "google/protobuf/message.h"

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

// Clears each number of `message` that cannot be, but for the one called
// `except`.
void CleanNumbers(google::protobuf::Message& message,
                  absl::string_view except) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& values = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const Field& field = *message.GetDescriptor()->field(i);
    if (field.name() == except) continue;
    if (field.cpp_type() == Field::CPPTYPE_DOUBLE) {
      const double value = values.GetDouble(message, &field);
      values.SetDouble(&message, &field, Usable(value));
    } else if (field.cpp_type() == Field::CPPTYPE_INT64) {
      const int64_t value = values.GetInt64(message, &field);
      values.SetInt64(&message, &field, Usable(value));
    }
  }
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

v1::LogLine ToProto(const LogRecord& line) {
  v1::LogLine proto;
  proto.set_unix_ms(line.unix_ms);
  proto.set_level(line.level);
  proto.set_source(line.source);
  proto.set_text(ToUtf8(line.text, kMaxTextBytes));
  proto.set_sequence(line.origin_sequence);
  return proto;
}

v1::StageTime ToProto(const StageTime& time) {
  v1::StageTime proto;
  proto.set_stage(time.stage);
  proto.set_seconds(time.seconds);
  proto.set_micro_batches(time.micro_batches);
  if (time.updates == 0) return proto;
  v1::StageVersions& versions = *proto.mutable_versions();
  versions.set_stage(time.stage);
  versions.set_updates(time.updates);
  versions.set_skipped_updates(time.skipped_updates);
  versions.set_staleness(time.staleness);
  versions.set_versions(time.versions);
  versions.set_version_bytes(time.version_bytes);
  return proto;
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

namespace {

absl::Status CheckRun(const v1::RunState& run) {
  if (run.phase() <= 0 || run.phase() >= kRunPhases) {
    return absl::InvalidArgumentError(
        absl::StrCat("run state: phase ", static_cast<int>(run.phase()),
                     " does not exist, need 1 to ", kRunPhases - 1));
  }
  if (run.job() < 1 || run.step() < 0 || run.steps() < 0 || run.samples() < 0 ||
      run.total_samples() < 0 || run.error_code() < 0 ||
      run.error_code() > 16 || run.peak_memory_bytes() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "run state: job, step, steps, samples, total_samples, error_code or "
        "peak_memory_bytes is out of range: ",
        run.job(), ", ", run.step(), ", ", run.steps(), ", ", run.samples(),
        ", ", run.total_samples(), ", ", run.error_code(), ", ",
        run.peak_memory_bytes()));
  }
  return absl::OkStatus();
}

absl::Status CheckRecords(const v1::Heartbeat& heartbeat) {
  for (const v1::StepRecord& step : heartbeat.steps()) {
    if (step.step() >= 1 && step.samples() >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "record of step ", step.step(), " with ", step.samples(), " samples",
        ": need a step of at least 1 and samples of at least 0"));
  }
  for (const v1::EvaluationRecord& evaluation : heartbeat.evaluations()) {
    if (evaluation.step() >= 0 && evaluation.samples() >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation after step ", evaluation.step(), " with ",
                     evaluation.samples(), " samples: need neither below 0"));
  }
  return absl::OkStatus();
}

void CleanRun(v1::RunState& run) {
  if (run.has_seconds()) {
    CleanNumbers(*run.mutable_seconds(), "unexplained");
    // The unexplained rest may be a little below none.
    if (!std::isfinite(run.seconds().unexplained())) {
      run.mutable_seconds()->clear_unexplained();
    }
  }
  for (v1::StageTime& time : *run.mutable_stage_times()) {
    CleanNumbers(time, "");
    if (time.has_versions()) CleanNumbers(*time.mutable_versions(), "");
  }
  // A model may well have a loss that is no number.
  if (run.has_flow()) CleanNumbers(*run.mutable_flow(), "loss");
  run.set_step_seconds(Usable(run.step_seconds()));
  run.set_timed_steps(Usable(run.timed_steps()));
  run.set_unreadable_samples(Usable(run.unreadable_samples()));
}

}  // namespace

absl::Status CheckHeartbeat(v1::Heartbeat& heartbeat) {
  if (heartbeat.has_run()) {
    PACELINE_RETURN_IF_ERROR(CheckRun(heartbeat.run()));
    CleanRun(*heartbeat.mutable_run());
  }
  PACELINE_RETURN_IF_ERROR(CheckRecords(heartbeat));
  for (v1::LogLine& line : *heartbeat.mutable_logs()) {
    line.set_level(OneLine(line.level()));
    line.set_source(OneLine(line.source()));
    line.set_text(OneLine(line.text()));
  }
  return absl::OkStatus();
}

absl::Status ErrorOf(const v1::RunState& run) {
  if (run.phase() != v1::RunState::PHASE_FAILED) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(run.error_code());
  return absl::Status(
      code == absl::StatusCode::kOk ? absl::StatusCode::kInternal : code,
      run.error_message().empty() ? "no reason was given"
                                  : OneLine(run.error_message()));
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
