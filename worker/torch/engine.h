// A stage of a model on LibTorch.  This header shows none of it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/stage_engine.h"

namespace paceline {

// Makes the engine of options.layers with first values drawn from
// options.train.seed.  Call it on the compute thread, after
// SetComputeThreads().
//
// Layer by layer: every layer's output is contiguous
// and detached, so that a cut changes nothing; the default generator is seeded
// from (seed, step, micro-batch, layer) before a layer that draws; gradients
// add up in the order of the Backward() calls.
//
// Errors:
//   InvalidArgument    a range that is empty or outside of the model; both
//                      `stashes` and `flat_gradient`
//   NotFound, ...      of a script's file (script_file.h)
//   FailedPrecondition a script's file that is not the one of the description
//   ResourceExhausted  not enough memory
absl::StatusOr<std::unique_ptr<StageEngine>> MakeTorchEngine(
    const EngineOptions& options);

}  // namespace paceline
