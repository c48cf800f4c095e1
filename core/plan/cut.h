// Cuts a chain of layers into stages.  Pure.
//
// The seam for policies: each is one function that yields a Cut, and ChooseCut
// picks it.  Placement, memory and the plan's words do not know which.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/plan/plan.h"

namespace paceline {

struct Cut {
  std::vector<LayerRange> stages;  // together the whole chain, none empty
  std::string why;                 // "equal", "cuts": what decided
};

// pipeline.cuts when given, else `equal`.
// Errors: InvalidArgument  as CutAt and CutEqually.
absl::StatusOr<Cut> ChooseCut(const PipelineSpec& pipeline,
                              const ModelDescription& model);

}  // namespace paceline
