// Cuts a chain of layers into stages in three ways: without regard to machines
// (the job's own cuts, and equal ones); to deal stages out in turn
// (interleaved-1f1b); and to split one worker's layers into neighbouring
// stages.  The policies of search/policy.h take machines into account.  Pure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/plan/cost.h"
#include "core/plan/plan.h"
#include "core/plan/problem.h"

namespace paceline {

struct StageCut {
  std::vector<LayerRange> stages;  // together the whole chain, none empty
  std::string why;                 // the rule: "equal" or "cuts"
};

// Returns pipeline.cuts when given, else equal layer counts; pipeline.stages 0
// counts as 1.
// Errors: InvalidArgument  as CutAt and CutEqually.
absl::StatusOr<StageCut> ChooseCut(const PipelineSpec& pipeline,
                                   const ModelDescription& model);

// --- stages dealt out in turn (interleaved-1f1b) ----------------------------

struct DealingRequest {
  int stages = 0;         // 0: two a worker
  int workers = 1;        // available ones, at least 1
  int layers = 1;         // at least max(stages, 1)
  int micro_batches = 1;  // of a batch
};

// Stage s goes to worker s mod `workers`.
struct Dealing {
  int stages = 1;
  int workers = 1;  // workers that get stages
};

// Chooses as many workers as can have the same number of stages each: at least
// two where there are two, since with one nothing is interleaved.  With stages
// 0 the number of workers also divides the micro-batches.
//
// Errors: InvalidArgument  the micro-batches are no multiple of the workers
absl::StatusOr<Dealing> DealStages(const DealingRequest& request);

// Cuts the layers into `stages` so that the longest stage takes least, with
// stage s on device s mod problem.devices.  The longest stage decides the pace,
// because every worker computes its stages in turn.  Of equal cuts it takes the
// one with the earliest boundaries.  O(stages x layers^2).
//
//   1 <= stages <= layers; problem has passed CheckProblem
std::vector<LayerRange> CutForDealing(const PlanProblem& problem, int stages);

// --- stages that share a worker ---------------------------------------------

struct SharedStages {
  std::vector<LayerRange> stages;
  std::vector<int> holder_of;  // [stages]: index into the placement, ascending
};

// Returns the index of each stage's worker when stages are dealt out in order:
// runs whose lengths differ by at most one, the longer ones first.  stages,
// workers >= 1.
std::vector<int> SpreadStages(int stages, int workers);

// Cuts the stages of `placement`, one device each, into `stages` in all.  It
// repeatedly takes the device whose longest part takes most (of equal ones the
// first) and cuts its layers into one part more, as equal in seconds as the
// layers allow.  The total compute of a device, and so the pace, does not
// change.
// O(stages^2 x layers^2).
//
//   stages: at least as many as the placement has, at most as many as layers
SharedStages CutFurther(const PlanProblem& problem, const Placement& placement,
                        int stages);

// --- the best cut ---

// Cuts the layers into `stages` so that the cost of all of them is least; of
// equal cuts it takes the one with the earliest boundaries.
// O(stages x layers^2).
//
//   1 <= stages <= layers
//   nothing                    the cost of no stages
//   add(before, stage, range)  the cost of the stages up to `stage`, which
//                              holds `range`; the earlier ones cost `before`
template <typename Cost, typename Add>
std::vector<LayerRange> BestCut(int layers, int stages, const Cost& nothing,
                                const Add& add) {
  // The best cut of the first layers into a given number of stages.
  struct Prefix {
    Cost cost;
    int from = 0;  // the first layer of its last stage
  };
  std::vector<std::vector<Prefix>> best(
      stages + 1, std::vector<Prefix>(layers + 1, {nothing}));
  for (int stage = 0; stage < stages; ++stage) {
    const auto cost_from = [&](int first, int last) {
      return add(best[stage][first].cost, stage, LayerRange{first, last});
    };
    for (int last = stage + 1; last <= layers; ++last) {
      Prefix here = {cost_from(stage, last), stage};
      // No layer comes before the first stage's.
      const int end = stage == 0 ? 0 : last;
      for (int first = stage + 1; first < end; ++first) {
        const Cost cost = cost_from(first, last);
        if (cost < here.cost) here = {cost, first};
      }
      best[stage + 1][last] = here;
    }
  }
  std::vector<LayerRange> ranges;
  int last = layers;
  for (int stage = stages; stage > 0; --stage) {
    ranges.push_back({best[stage][last].from, last});
    last = ranges.back().first;
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

}  // namespace paceline
