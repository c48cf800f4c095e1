// What is in a TorchScript file, for whoever has no LibTorch.  This header
// shows none of it.
#pragma once

#include "absl/status/statusor.h"
#include "core/model/job_spec.h"

namespace paceline {

// Loads `spec.model.file` and tries each child of its root on two samples as
// `spec.data` has them, of zeros, or of the highest token: shapes of outputs,
// and the bytes kept for backward, are what it saw; FLOPs are guessed from the
// parameters.  On the compute thread.
//
// Errors (all name the file):
//   NotFound, PermissionDenied, ...  as the system says
//   ResourceExhausted  it has more bytes than this worker's memory, or no
//                      memory is left
//   InvalidArgument  no regular file, empty, or not TorchScript; traced; its
//                    root is no Sequential, or is empty; a child that these
//                    samples do not go through, that gives something else than
//                    one float32 tensor, shares parameters with another, or has
//                    some of a dtype that we do not have
absl::StatusOr<ScriptModel> ReadScript(const JobSpec& spec);

}  // namespace paceline
