// A stage of a model on LibTorch.  This header shows none of it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"
#include "worker/pipeline/stage_engine.h"

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
//   NotFound, ...      of a script's file (engine.h)
//   FailedPrecondition a script's file that is not the one of the description
//   ResourceExhausted  not enough memory
absl::StatusOr<std::unique_ptr<StageEngine>> MakeTorchEngine(
    const EngineOptions& options);

// Sets LibTorch's, OpenMP's and OpenBLAS's pools to `threads` (at least 1) and
// LibTorch's pool between operations to 1.  Idle pool threads spin a small
// machine's quota away, and another count gives other bytes.  May be called
// again; call it on the compute thread, since OpenMP's number is a thread's
// own.
void SetComputeThreads(int threads);

// The level LibTorch's own kernels run at: "default", "avx2" or "avx512", and
// "avx512_bf16" where oneDNN uses these instructions besides; elsewhere what
// LibTorch calls it, in lower case.
std::string ActiveCpuCapability();

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
