// Bounds under what placements cost: what no policy can beat.  Pure.
#pragma once

#include "core/plan/cost_table.h"
#include "core/plan/problem.h"

namespace paceline {

// A bound under the step_seconds of every placement that `problem` allows
// (stages, replicas, memory), whatever its shares: total work over total speed,
// the largest layer on the fastest device (or on all of them where replicas
// are allowed), one device a stage and the fewest transfers.  O(layers x
// devices), some hundred times.
double LowerBoundSeconds(const PlanProblem& problem);

// Under the step_seconds of every placement with one device a stage.
//
// At a pace b a device holds at most the largest run of whole layers whose
// compute, frames and (without overlap) cheapest transfers take at most b and
// whose memory it has; only one device holds the first layer and only one the
// last.  The pace must be one at which the runs together hold all layers.  For
// a step of M micro-batches the sum of the stages is at least what filling the
// devices in order of speed gives, and the bound is the least of sum(b) +
// (M - 1) b over b, by intervals: both sides fall or rise with b.
// O(layers x devices) for each of about 100 paces.
double PackingBoundSeconds(const CostTable& table);

}  // namespace paceline
