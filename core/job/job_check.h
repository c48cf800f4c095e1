// CheckJobSpec finds everything that is wrong with a job's spec.  Pure.
#pragma once

#include <vector>

#include "core/job/spec/job_spec.h"

namespace paceline {

// Everything that is wrong with `spec`, in the order of its fields; empty when
// it may run.  Looks at values only: whether files exist and workers have
// room is found out where they are.  Includes unknown model, data set,
// optimizer or schedule (with "did you mean"), ranges, cuts that do not
// ascend, and more stages than the model has layers.
std::vector<SpecProblem> CheckJobSpec(const JobSpec& spec);

}  // namespace paceline
