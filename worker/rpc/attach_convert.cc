#include "worker/rpc/attach_convert.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/rpc/group_convert.h"
#include "core/rpc/measurement_convert.h"
#include "core/rpc/report_convert.h"

namespace paceline {

absl::StatusOr<WorkerOrder> FromProto(const v1::StandingOrder& proto) {
  WorkerOrder order;
  if (proto.has_run()) {
    PACELINE_ASSIGN_OR_RETURN(order.run, FromProto(proto.run()));
  }
  if (proto.has_measure()) {
    PACELINE_ASSIGN_OR_RETURN(order.measure, FromProto(proto.measure()));
  }
  order.renew = proto.renew();
  return order;
}

v1::Heartbeat ToProto(const HeartbeatContent& content, int64_t sequence) {
  v1::Heartbeat proto;
  proto.set_sequence(sequence);
  proto.set_progress(content.progress);
  proto.set_restarting(content.restarting);
  proto.set_stopping(content.stopping);
  if (content.measurement.has_value()) {
    *proto.mutable_measurement() = ToProto(*content.measurement);
  }
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
  for (const RoundRecord& record : content.rounds) {
    *proto.add_rounds() = ToProto(record);
  }
  return proto;
}

}  // namespace paceline
