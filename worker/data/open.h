// Opens the data set that a job names.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/job_spec.h"
#include "core/schedule/route.h"
#include "worker/pipeline/batch_source.h"

namespace paceline {

// Opens spec.data, to be taken in the batches of spec.train, or of its walk
// those that `turns` has.  README.md says what each data set reads.  Looks at
// every label but at no picture, so call it off the control threads.
//
// Errors (the message names the file and what to do):
//   NotFound         a file is missing
//   PermissionDenied a file may not be read
//   InvalidArgument  unknown data set, a bad spec; a file that is not what it
//                    should be, is cut short, holds other sizes than spec.data
//                    says, or a label that is no class
absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatchSource(
    const JobSpec& spec, const Turns& turns = {});

}  // namespace paceline
