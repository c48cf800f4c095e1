// Opens a job's data, and loads its micro-batches ahead of the compute thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/data/batch.h"
#include "core/job/spec/job_spec.h"
#include "core/schedule/route.h"
#include "worker/data/sample_set.h"
#include "worker/pipeline/batch_source.h"

namespace paceline {

// The BatchSource of every data set.
// samples has at least one training sample.
//   threads  0: the caller's thread loads.  The tensors do not depend on it
//   turns    the batches that the walk takes
//   parts    which member sees which samples; null: all see all
//   order_bytes  of the order of an epoch; see core/plan/memory.h
std::unique_ptr<BatchSource> MakeBatchLoader(
    const TrainSpec& train, std::unique_ptr<const SampleSet> samples,
    int threads, const Turns& turns = {},
    std::unique_ptr<const SampleParts> parts = nullptr,
    int64_t order_bytes = 0);

// Opens spec.data, to be taken in the batches of spec.train, or of its walk
// those that `turns` has.  CheckJobSpec() has seen the spec.  README.md says
// what each data set reads.  Looks at every label but at no picture, so call it
// off the control threads.
//
// Errors (the message names the file and what to do):
//   NotFound         a file is missing
//   PermissionDenied a file may not be read
//   InvalidArgument  a file that is not what it should be, is cut short, holds
//                    other sizes than spec.data says, or a label that is no
//                    class
absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatchSource(
    const JobSpec& spec, const Turns& turns = {});

}  // namespace paceline
