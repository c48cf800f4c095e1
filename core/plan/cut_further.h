// More stages than workers: what one worker computes becomes several
// neighbouring stages.  Pure.
#pragma once

#include <vector>

#include "core/plan/cost.h"
#include "core/plan/layer_range.h"
#include "core/plan/problem.h"

namespace paceline {

struct SharedStages {
  std::vector<LayerRange> stages;
  std::vector<int> holder_of;  // [stages]: index into the placement, ascending
};

// The index of each stage's worker when they are dealt out in order: runs whose
// lengths differ by at most one, the longer ones first.  stages, workers >= 1.
std::vector<int> SpreadStages(int stages, int workers);

// Cuts the stages of `placement`, one device each, into `stages` in all: each
// time the one whose longest piece takes most, of equal ones the first; its
// pieces as alike in seconds as its layers allow.  What a device computes in
// all, and so the pace, stays what the placement says.
// O(stages^2 x layers^2).
//
//   as many stages as the placement has, at least; no more than layers
SharedStages CutFurther(const PlanProblem& problem, const Placement& placement,
                        int stages);

}  // namespace paceline
