#include "core/plan/cut.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/plan/cost_table.h"

namespace paceline {
namespace {

// Deals two stages a worker, on as many workers as layers and micro-batches
// allow.
Dealing DealTwoEach(const DealingRequest& request) {
  int workers = std::min(request.workers, request.layers / 2);
  while (workers > 1 && request.micro_batches % workers != 0) --workers;
  workers = std::max(workers, 1);
  return {std::min(2 * workers, request.layers), workers};
}

int WorkersFor(int stages, int workers) {
  int used = std::max(1, std::min(workers, stages / 2));
  while (stages % used != 0) --used;
  return used;
}

struct Pieces {
  std::vector<LayerRange> ranges;
  double longest_seconds = 0;
};

// Cuts the layers of `stage` on its device into `count` parts.
Pieces PiecesOf(const CostTable& table, const PlacedStage& stage, int count) {
  const int first = stage.layers.first;
  const int device = stage.devices.front();
  Pieces pieces;
  pieces.ranges = BestCut(
      stage.layers.last - first, count, 0.0,
      [&](double longest, int, LayerRange range) {
        return std::max(longest, table.ComputeOnly(first + range.first,
                                                   first + range.last, device));
      });
  for (LayerRange& range : pieces.ranges) {
    range = {first + range.first, first + range.last};
    pieces.longest_seconds = std::max(
        pieces.longest_seconds, LayerSeconds(table.problem(), range, device));
  }
  return pieces;
}

}  // namespace

absl::StatusOr<std::vector<LayerRange>> CutEqually(int layers, int stages) {
  if (stages < 1) {
    return InvalidArgument("got ", stages, " stages, need at least 1");
  }
  if (layers < stages) {
    return InvalidArgument(
        "more stages than layers: ", Counted(stages, "stage"), ", but only ",
        Counted(layers, "layer"), ", and a layer cannot be cut");
  }
  std::vector<LayerRange> ranges;
  int first = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const int last = first + layers / stages + (stage < layers % stages);
    ranges.push_back({first, last});
    first = last;
  }
  return ranges;
}

absl::StatusOr<std::vector<LayerRange>> CutAt(int layers,
                                              const std::vector<int>& cuts) {
  if (layers < 1) {
    return InvalidArgument("got ", layers, " layers, need at least 1");
  }
  std::vector<LayerRange> ranges;
  int first = 0;
  for (const int cut : cuts) {
    if (cut <= first || cut >= layers) {
      return InvalidArgument("cut at layer ", cut,
                             " leaves a stage empty: the cut must lie after ",
                             first, " and before ", layers);
    }
    ranges.push_back({first, cut});
    first = cut;
  }
  ranges.push_back({first, layers});
  return ranges;
}

absl::StatusOr<StageCut> ChooseCut(const PipelineSpec& pipeline,
                                   const ModelDescription& model) {
  const int layers = static_cast<int>(model.layers.size());
  if (!pipeline.cuts.empty()) {
    PACELINE_ASSIGN_OR_RETURN(std::vector<LayerRange> stages,
                              CutAt(layers, pipeline.cuts));
    return StageCut{std::move(stages), "cuts"};
  }
  PACELINE_ASSIGN_OR_RETURN(std::vector<LayerRange> stages,
                            CutEqually(layers, std::max(1, pipeline.stages)));
  return StageCut{std::move(stages), "equal"};
}

absl::StatusOr<Dealing> DealStages(const DealingRequest& request) {
  if (request.stages == 0) return DealTwoEach(request);
  const Dealing dealing{request.stages,
                        WorkersFor(request.stages, request.workers)};
  if (request.micro_batches % dealing.workers == 0) return dealing;
  return InvalidArgument(
      "interleaved-1f1b with ", dealing.stages, " stages on ",
      Counted(dealing.workers, "worker"),
      " needs the micro-batches of a batch to be a multiple of ",
      dealing.workers, ", train.batch and train.micro_batch make ",
      request.micro_batches,
      ": change one of them, pipeline.stages, or use pipeline.schedule 1f1b");
}

std::vector<LayerRange> CutForDealing(const PlanProblem& problem, int stages) {
  const CostTable table(problem);
  return BestCut(table.layers(), stages, 0.0,
                 [&](double longest, int stage, LayerRange range) {
                   return std::max(longest,
                                   table.ComputeOnly(range.first, range.last,
                                                     stage % table.devices()));
                 });
}

std::vector<int> SpreadStages(int stages, int workers) {
  const int used = std::min(stages, workers);
  std::vector<int> worker_of;
  for (int worker = 0; worker < used; ++worker) {
    worker_of.insert(worker_of.end(), stages / used + (worker < stages % used),
                     worker);
  }
  return worker_of;
}

SharedStages CutFurther(const PlanProblem& problem, const Placement& placement,
                        int stages) {
  PACELINE_CHECK(static_cast<size_t>(stages) >= placement.size() &&
                     static_cast<size_t>(stages) <= problem.layers.size(),
                 "stages=", stages, " holders=", placement.size(),
                 " layers=", problem.layers.size());
  const CostTable table(problem);
  std::vector<Pieces> pieces;
  for (const PlacedStage& stage : placement) {
    pieces.push_back(PiecesOf(table, stage, 1));
  }
  for (size_t made = placement.size(); made < static_cast<size_t>(stages);
       ++made) {
    int longest = -1;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const LayerRange& layers = placement[i].layers;
      const auto most = static_cast<size_t>(layers.last - layers.first);
      if (pieces[i].ranges.size() == most) continue;
      if (longest == -1 ||
          pieces[i].longest_seconds > pieces[longest].longest_seconds) {
        longest = static_cast<int>(i);
      }
    }
    const int count = static_cast<int>(pieces[longest].ranges.size()) + 1;
    pieces[longest] = PiecesOf(table, placement[longest], count);
  }
  SharedStages shared;
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (const LayerRange& range : pieces[i].ranges) {
      shared.stages.push_back(range);
      shared.holder_of.push_back(static_cast<int>(i));
    }
  }
  return shared;
}

}  // namespace paceline
