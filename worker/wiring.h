// What a run needs to know of its neighbours: derived from the standing order,
// handed to the data plane.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/base/tensor.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/plan/plan.h"
#include "core/schedule/route.h"
#include "core/schedule/schedule.h"
#include "core/transfer/tensor_codec.h"
#include "worker/link.h"

namespace paceline {

struct WorkerAddress {
  WorkerId worker;
  std::string address;  // host:port
};

// Where a stage lives: one worker, or replicas that take turns.
struct StageWiring {
  std::vector<WorkerAddress> replicas;
  RouteTable route;

  // -1: not one of them.
  int IndexOf(WorkerId worker) const;
};

struct RunWiring {
  Fence fence;
  WorkerId self;
  std::vector<StageWiring> stages;  // of the whole plan
  // [stages - 1]: what crosses each boundary, of one sample and without the
  // labels (core/transfer/frame.h).
  std::vector<std::vector<SampleTensor>> boundaries;
  Shape label_shape;          // of one sample
  std::vector<Tie> ties;      // in layer order of their users
  int64_t micro_batch = 0;    // n <= this
  ScheduleBounds bounds;      // credit and queue bounds
  Codec codec = Codec::kRaw;  // of what is sent to other workers
  // Every frame is acknowledged when it is here, so that its sender can tell a
  // slow link from a slow neighbour.
  bool acknowledges_at_once = false;
};

// What the step gate needs; known once the data set is open.
struct GateOptions {
  TrainSpec train;
  int64_t total_steps = 0;
};

// The two ends of a run.  Destroying both closes it.
struct RunConnections {
  std::unique_ptr<Link> link;
  std::unique_ptr<GateClient> gate;
};

}  // namespace paceline
