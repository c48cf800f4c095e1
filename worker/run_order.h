// The standing order of a worker, as the logic sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/plan/plan.h"
#include "worker/wiring.h"

namespace paceline {

// One stage of the plan and who holds it.
struct StagePlacement {
  LayerRange layers;
  WorkerId worker;
  std::string worker_name;
  std::string address;  // host:port

  friend bool operator==(const StagePlacement&,
                         const StagePlacement&) = default;
};

struct RunOrder {
  Fence fence;
  int64_t restore_step = 0;  // 0: from the seed
  JobSpec spec;
  std::vector<StagePlacement> stages;  // by stage number
  std::string cpu_capability;          // never "auto"
  int threads = 1;
};

// Numbers the workers of a plan in order of their first stage: the result has
// one entry a stage, as ScheduleRequest::worker_of wants it.
std::vector<int> WorkerIndexOfStage(const RunOrder& order);

// Stages of the plan that `self` holds, ascending.
std::vector<int> StagesOf(const RunOrder& order, WorkerId self);

// Checks what the coordinator could have sent wrong: stages that do not cover
// the model's layers, none for `self`, no threads.
absl::Status CheckOrder(const RunOrder& order, const ModelDescription& model,
                        WorkerId self);

// The data plane's part of an order that CheckOrder accepted.  Its bounds are
// those that the checker proves for one batch, doubled for activations so that
// a forward-only batch may start while the one before still travels.
absl::StatusOr<RunWiring> MakeRunWiring(const RunOrder& order,
                                        const ModelDescription& model,
                                        WorkerId self);

}  // namespace paceline
