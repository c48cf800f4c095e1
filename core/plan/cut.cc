#include "core/plan/cut.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/plan/interleave.h"

namespace paceline {
namespace {

struct Pieces {
  std::vector<LayerRange> ranges;
  double longest_seconds = 0;
};

// The layers of `stage` on its device, in `count` pieces.
Pieces PiecesOf(const PlanProblem& problem, const PlacedStage& stage,
                int count) {
  const LayerRange& layers = stage.layers;
  const int device = stage.devices.front();
  PlanProblem part;
  part.layers.assign(problem.layers.begin() + layers.first,
                     problem.layers.begin() + layers.last);
  part.devices = {problem.devices[device]};
  std::vector<double>& seconds = part.devices[0].layer_seconds;
  if (!seconds.empty()) {
    seconds = {seconds.begin() + layers.first, seconds.begin() + layers.last};
  }
  part.training = problem.training;
  Pieces pieces;
  for (LayerRange range : CutForDealing(part, count)) {
    range.first += layers.first;
    range.last += layers.first;
    pieces.longest_seconds =
        std::max(pieces.longest_seconds, LayerSeconds(problem, range, device));
    pieces.ranges.push_back(range);
  }
  return pieces;
}

}  // namespace

absl::StatusOr<std::vector<LayerRange>> CutEqually(int layers, int stages) {
  if (stages < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", stages, " stages, need at least 1"));
  }
  if (layers < stages) {
    return absl::InvalidArgumentError(
        absl::StrCat("more stages than layers: ", stages, " stages, but only ",
                     layers, " layers, and a layer cannot be cut"));
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
    return absl::InvalidArgumentError(
        absl::StrCat("got ", layers, " layers, need at least 1"));
  }
  std::vector<LayerRange> ranges;
  int first = 0;
  for (const int cut : cuts) {
    if (cut <= first || cut >= layers) {
      return absl::InvalidArgumentError(
          absl::StrCat("cut at layer ", cut,
                       " leaves a stage empty: the cut must lie after ", first,
                       " and before ", layers));
    }
    ranges.push_back({first, cut});
    first = cut;
  }
  ranges.push_back({first, layers});
  return ranges;
}

absl::StatusOr<Cut> ChooseCut(const PipelineSpec& pipeline,
                              const ModelDescription& model) {
  const int layers = static_cast<int>(model.layers.size());
  if (!pipeline.cuts.empty()) {
    PACELINE_ASSIGN_OR_RETURN(std::vector<LayerRange> stages,
                              CutAt(layers, pipeline.cuts));
    return Cut{std::move(stages), "cuts"};
  }
  PACELINE_ASSIGN_OR_RETURN(std::vector<LayerRange> stages,
                            CutEqually(layers, std::max(1, pipeline.stages)));
  return Cut{std::move(stages), "equal"};
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
                 absl::StrCat("stages=", stages, " holders=", placement.size(),
                              " layers=", problem.layers.size()));
  std::vector<Pieces> pieces;
  for (const PlacedStage& stage : placement) {
    pieces.push_back(PiecesOf(problem, stage, 1));
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
    pieces[longest] = PiecesOf(problem, placement[longest], count);
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
