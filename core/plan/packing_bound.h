// A bound for plans without replicas: what each device can hold at a pace.
// Pure.
#pragma once

#include "core/plan/dp_table.h"

namespace paceline {

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
double PackingBoundSeconds(const DpTable& table);

}  // namespace paceline
