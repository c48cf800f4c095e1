// A forward keeps some results for its backward, which computes the others once
// more (train.activation_checkpointing).  Pure.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

// Layers of a segment of a stage, in `Recompute::every`.
inline constexpr int kWholeStage = 0;

// How a stage recomputes.  Default: not at all.
struct Recompute {
  bool recomputes = false;
  int every = kWholeStage;  // layers a segment
};

// "none", "stage", or "every-N" with N from 1 to kMostLayersASegment.  Nothing
// for other words.
inline constexpr int kMostLayersASegment = 1'000'000;
std::optional<Recompute> FindRecompute(absl::string_view name);

// The layers of a stage in segments, counted from its first layer: of each only
// the input is kept, and the backward begins with its forward.  Without
// recomputing a stage is one segment, of which everything is kept.
//   layers  of the stage, at least 1
// Returns [first, last) of each, ascending.
std::vector<std::pair<int, int>> SegmentsOf(const Recompute& recompute,
                                            int layers);

}  // namespace paceline
