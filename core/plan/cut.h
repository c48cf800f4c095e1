// Cuts a chain of layers into stages without looking at machines: the job's
// own cuts, and equal ones.  Policies that look at machines are in policy.h.
// Pure.
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

// pipeline.cuts when given, else equal layer counts; pipeline.stages 0 counts
// as 1.
// Errors: InvalidArgument  as CutAt and CutEqually.
absl::StatusOr<Cut> ChooseCut(const PipelineSpec& pipeline,
                              const ModelDescription& model);

}  // namespace paceline
