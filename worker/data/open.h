// The doors to the data sets: a job's spec in, its micro-batches out.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/job_spec.h"
#include "core/schedule/route.h"
#include "worker/batch_source.h"
#include "worker/step_source.h"

namespace paceline {

// Opens spec.data and walks it as spec.train says, of its batches those that
// `turns` has.  README.md says what each
// data set reads.  Looks at every label but at no picture, so call it off the
// control threads.
//
// Errors (the message names the file and what to do):
//   NotFound         a file is missing
//   PermissionDenied a file may not be read
//   InvalidArgument  unknown data set, a bad spec; a file that is not what it
//                    should be, is cut short, holds other sizes than spec.data
//                    says, or a label that is no class
absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatchSource(
    const JobSpec& spec, const Turns& turns = {});

// The same data for a member of a round group; spec.kind is train.
// Errors: as OpenBatchSource
absl::StatusOr<std::unique_ptr<StepSource>> OpenStepSource(const JobSpec& spec);

}  // namespace paceline
