// Turns the orders of stages into the orders of workers.  Pure.
#pragma once

#include <vector>

#include "core/schedule/compute_order.h"

namespace paceline {

// Merges the orders of stages that share a worker by list scheduling: a dry
// run of the whole pipeline in which a forward takes 1 tick, a backward 2 and
// a transfer none.  A worker that is free takes, among the next computes of
// its stages whose input is there,
//
//   1. a backward before a forward: it frees what a stage keeps, and the
//      stages before wait for it;
//   2. of one kind the lowest micro-batch, which is the furthest on its way.
//
// Rule 3 is for those halves alone: of two stages, any other kind and
// micro-batch can be ready on one only, as one's output is the other's input.
//
// Each stage's own order is kept, and so is what it proves of kept
// micro-batches.  The result cannot deadlock: sorted by the tick in which they
// started, all computes have their inputs before them.
//
//   orders     [stages]; together without a deadlock
//   worker_of  [stages], each in [0, workers)
// Returns [workers].
std::vector<ComputeOrder> MergeByWorker(const std::vector<ComputeOrder>& orders,
                                        const std::vector<int>& worker_of,
                                        int workers);

}  // namespace paceline
