// Where a member of a round group gets its micro-batches: any step, and of its
// batch any micro-batches, since members divide batches and come and go.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/model/batch.h"

namespace paceline {

// Used by the compute thread alone; loads ahead on threads of its own.  The
// same samples, in the same order and cut the same way as BatchSource gives
// them for this job.
class StepSource {
 public:
  virtual ~StepSource() = default;

  virtual int64_t total_steps() const = 0;
  virtual int64_t test_samples() const = 0;

  // The training batch after `step` updates; 0 <= step < total_steps().
  virtual BatchInfo Training(int64_t step) const = 0;
  // The test set as one batch, where one is due after `steps` updates, or
  // after the last; micro_batches 0: none is.
  virtual BatchInfo Evaluation(int64_t steps) const = 0;

  // Begins to load these micro-batches of `batch`, ascending.  What was being
  // loaded and not taken is dropped.
  virtual void Prepare(const BatchInfo& batch,
                       const std::vector<int>& micro_batches) = 0;
  // The next one of those prepared, as BatchSource::NextMicroBatch.  Waits for
  // the loader.
  // Errors: FailedPrecondition  all were taken; DataLoss
  virtual absl::StatusOr<TensorList> Next() = 0;

  // As BatchSource::unreadable.
  virtual int64_t unreadable() const { return 0; }
};

}  // namespace paceline
