// Cuts a chain of layers into stages: without looking at machines (the job's
// own cuts, and equal ones), dealt out in turn (interleaved-1f1b), and what one
// worker computes into several neighbouring stages.  Policies that look at
// machines are in policy.h.  Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/plan/cost.h"
#include "core/plan/plan.h"
#include "core/plan/problem.h"

namespace paceline {

struct Cut {
  std::vector<LayerRange> stages;  // together the whole chain, none empty
  std::string why;                 // "equal", "cuts": what decided
};

// pipeline.cuts when given, else equal layer counts; pipeline.stages 0 counts
// as 1.
// Errors: InvalidArgument  as CutAt and CutEqually.
absl::StatusOr<Cut> ChooseCut(const PipelineSpec& pipeline,
                              const ModelDescription& model);

// --- stages dealt out in turn (interleaved-1f1b) ----------------------------

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

// --- stages that share a worker ---------------------------------------------

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
