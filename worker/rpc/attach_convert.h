// The control stream's messages to the worker's structs and back.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "paceline/v1/coordinator.pb.h"
#include "worker/agent.h"
#include "worker/run_order.h"

namespace paceline {

// What a worker shall be doing; neither: be idle.
struct WorkerOrder {
  std::optional<RunOrder> run;
  std::optional<MeasureOrder> measure;
  bool renew = false;  // be another process
};

// Errors: InvalidArgument  stages are not numbered 0, 1, 2, ...; an order to
// measure nothing
absl::StatusOr<WorkerOrder> FromProto(const v1::StandingOrder& proto);

v1::Heartbeat ToProto(const HeartbeatContent& content, int64_t sequence);

}  // namespace paceline
