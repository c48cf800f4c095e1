// In which order replicated stages compute.  Pure.
#pragma once

#include <vector>

#include "core/schedule/compute_order.h"

namespace paceline {

// One worker of one stage.
struct ReplicaWork {
  int stage = 0;
  std::vector<int> micro_batches;  // ascending
  int in_flight = 1;  // forwards ahead of their backwards, at least 1
};

// The order of each worker: forward while fewer than its in_flight are on their
// way, else backward; forwards and backwards each in ascending order.
//
// Found by a dry run, so that it cannot deadlock: where everyone would wait,
// the lowest micro-batch that could go backward does so out of turn.  It always
// exists: of the lowest micro-batch that is not done everywhere, all lower ones
// are done, so it is the next of its worker, forward or backward.
//
//   workers    any order; each (stage, micro-batch) belongs to one of them
// O(stages x micro-batches), and O(workers) for each time out of turn.
// Returns [workers].
std::vector<ComputeOrder> OrderReplicas(const std::vector<ReplicaWork>& workers,
                                        int stages, int micro_batches,
                                        bool training);

}  // namespace paceline
