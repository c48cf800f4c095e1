// Planning problems of chance, and a judge of placements that shares no line
// and no structure with core/plan/cost.cc: it was written from the words in
// cost.h alone.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/random.h"
#include "core/plan/cost.h"
#include "core/plan/problem.h"

namespace paceline {

// Up to 8 layers on up to 5 unlike devices (some alike), asymmetric links,
// memory bounds (some that nothing fits), and every option of PlanProblem.
// Bytes are whole numbers, so that all sums of them are exact.  Small enough
// for `brute`: 3,000 placements on average.
PlanProblem RandomProblem(uint64_t seed);

// `layers` equal-ish layers on `devices` unlike ones, links over three decades,
// no memory bound, 64 micro-batches.  For the large sizes.
PlanProblem LargeProblem(int layers, int devices, uint64_t seed);

// Some placement, with shares as SharesFor gives them when the problem wants
// uneven ones every second time, else of chance.
Placement RandomPlacement(const PlanProblem& problem, SplitMix64& random);

struct Judgement {
  std::vector<double> stage_seconds;
  double bottleneck_seconds = 0;
  double step_seconds = 0;
  std::vector<double> memory_bytes;
  bool fits = true;
};

// Routes every micro-batch over the devices, books what each resource (a
// device's compute, a device's port to a boundary) is busy per micro-batch in a
// table, and sends the step through the table event by event.  O(stages x
// micro_batches + layers x devices + devices^2 x stages).
Judgement Judge(const PlanProblem& problem, const Placement& placement);

}  // namespace paceline
