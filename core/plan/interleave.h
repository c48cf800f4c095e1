// Where the stages of interleaved-1f1b lie, and where they are cut.  Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/problem.h"

namespace paceline {

struct DealingRequest {
  int stages = 0;         // 0: two a worker
  int workers = 1;        // that there are, at least 1
  int layers = 1;         // at least max(stages, 1)
  int micro_batches = 1;  // of a batch
};

// Stage s goes to worker s mod `workers`.
struct Dealing {
  int stages = 1;
  int workers = 1;  // that get stages
};

// As many workers as can have the same number of stages each, at least two
// where there are two (else nothing is interleaved).  With stages 0, no more
// workers than fit the micro-batches.
//
// Errors: InvalidArgument  the micro-batches are no multiple of the workers
absl::StatusOr<Dealing> DealStages(const DealingRequest& request);

// Cuts the layers in `stages` so that the longest stage takes least, stage s on
// device s mod problem.devices: every worker computes in turn for all of its
// stages, so the longest decides the pace.  Of equal cuts the one with the
// earliest boundaries.  O(stages x layers^2).
//
//   1 <= stages <= layers; problem has passed CheckProblem
std::vector<LayerRange> CutForDealing(const PlanProblem& problem, int stages);

}  // namespace paceline
