#include "worker/rpc/attach_convert.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/rpc/convert.h"

namespace paceline {
namespace {

v1::TimeSplit ToProto(const TimeSplit& split) {
  v1::TimeSplit proto;
  proto.set_forward(split.forward);
  proto.set_backward(split.backward);
  proto.set_send(split.send);
  proto.set_receive_wait(split.receive_wait);
  proto.set_aggregate(split.aggregate);
  proto.set_optimizer(split.optimizer);
  proto.set_snapshot(split.snapshot);
  proto.set_data(split.data);
  proto.set_orders(split.orders);
  proto.set_unexplained(split.unexplained);
  proto.set_wall(split.wall);
  return proto;
}

v1::RunState ToProto(const RunReport& run) {
  v1::RunState proto;
  proto.set_job(run.fence.job.value);
  proto.set_attempt(run.fence.attempt);
  proto.set_plan_version(run.fence.plan_version);
  proto.set_phase(static_cast<v1::RunState::Phase>(run.phase));
  proto.set_step(run.step);
  proto.set_steps(run.steps);
  proto.set_samples(run.samples);
  proto.set_error_code(static_cast<int>(run.error.code()));
  proto.set_error_message(std::string(run.error.message()));
  *proto.mutable_seconds() = ToProto(run.seconds);
  return proto;
}

v1::StepRecord ToProto(const StepRecord& record) {
  v1::StepRecord proto;
  proto.set_step(record.step);
  proto.set_loss(record.loss);
  proto.set_samples(record.samples);
  proto.set_learning_rate(record.learning_rate);
  proto.set_gradient_norm(record.gradient_norm);
  proto.set_skipped(record.skipped);
  proto.set_unix_ms(record.unix_ms);
  return proto;
}

v1::EvaluationRecord ToProto(const EvaluationRecord& record) {
  v1::EvaluationRecord proto;
  proto.set_step(record.step);
  proto.set_loss(record.loss);
  proto.set_accuracy(record.accuracy);
  proto.set_samples(record.samples);
  return proto;
}

v1::LogLine ToProto(const LogRecord& record) {
  v1::LogLine proto;
  proto.set_unix_ms(record.unix_ms);
  proto.set_level(record.level);
  proto.set_text(record.text);
  return proto;
}

}  // namespace

absl::StatusOr<std::optional<RunOrder>> FromProto(
    const v1::StandingOrder& proto) {
  if (!proto.has_run()) return std::optional<RunOrder>();

  const v1::RunOrder& run = proto.run();
  RunOrder order;
  order.fence = {JobId{run.job()}, run.attempt(), run.plan_version()};
  order.restore_step = run.restore_step();
  order.spec = FromProto(run.spec());
  order.cpu_capability = run.cpu_capability();
  order.threads = run.threads();
  for (const v1::StagePlacement& stage : run.stages()) {
    if (stage.stage() != static_cast<int>(order.stages.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("order: stage ", stage.stage(), " stands at place ",
                       order.stages.size()));
    }
    order.stages.push_back({stage.stage(),
                            {stage.first_layer(), stage.last_layer()},
                            WorkerId{stage.worker_id()},
                            stage.worker_name(),
                            stage.address()});
  }
  return std::optional<RunOrder>(std::move(order));
}

v1::Heartbeat ToProto(const HeartbeatContent& content, int64_t sequence) {
  v1::Heartbeat proto;
  proto.set_sequence(sequence);
  proto.set_progress(content.progress);
  if (content.run.has_value()) *proto.mutable_run() = ToProto(*content.run);
  for (const StepRecord& record : content.steps) {
    *proto.add_steps() = ToProto(record);
  }
  for (const EvaluationRecord& record : content.evaluations) {
    *proto.add_evaluations() = ToProto(record);
  }
  for (const LogRecord& record : content.logs) {
    *proto.add_logs() = ToProto(record);
  }
  return proto;
}

}  // namespace paceline
