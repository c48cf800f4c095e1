#include "core/plan/cut.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace paceline {

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

}  // namespace paceline
