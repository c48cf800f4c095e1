// A Link without a network: the workers of a run in one process.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/schedule/route.h"
#include "core/schedule/schedule.h"
#include "worker/pipeline/link.h"

namespace paceline {

struct MemoryWiring {
  std::vector<std::vector<int>> workers_of;  // [stages][replicas]: 0..W-1
  ScheduleBounds bounds;  // [stages - 1] each, used as RpcLink uses them
  Fence fence{JobId{1}, 1, 1};
  std::vector<Tie> ties = {};
  std::vector<RouteTable> routes = {};  // [stages]; empty: no replicas
};

// One link a worker, cross-wired: what one sends another receives, the
// tensors' memory shared.  The links may be destroyed in any order; what is
// sent to a destroyed one is dropped.
// Errors: InvalidArgument  a stage on a negative worker
absl::StatusOr<std::vector<std::unique_ptr<Link>>> MakeMemoryLinks(
    const MemoryWiring& wiring);

}  // namespace paceline
