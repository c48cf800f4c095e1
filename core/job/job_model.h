// The model that a job computes with: what its faults and its teacher make of
// the described one.  Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"

namespace paceline {

// The model of train.distill.weights.
ModelSpec TeacherOf(const JobSpec& spec);

// Describes what `spec` computes with, and its teacher.  Blocks that its faults
// skip are skipped.
// Errors: those of DescribeModel(spec.model, ...); InvalidArgument  a block
// that cannot be left out
absl::StatusOr<ModelDescription> DescribeModel(const JobSpec& spec);

}  // namespace paceline
