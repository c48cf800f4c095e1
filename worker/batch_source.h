// Where the first stage's micro-batches come from.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/model/batch.h"
#include "core/model/data_sets.h"

namespace paceline {

// Used by the compute thread alone; loads ahead on threads of its own.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Updates in the whole job.
  virtual int64_t total_steps() const = 0;

  // Samples of the test set that a walk over it takes.
  virtual int64_t test_samples() const = 0;

  // The next batch of the walk; nothing after the final one.
  virtual absl::StatusOr<std::optional<BatchInfo>> NextBatch() = 0;

  // The next micro-batch of the batch last returned, in ascending order: the
  // two tensors as FormatOf() of the job's data says, with n samples each: the
  // inputs [n, ...] float32 or tokens [n, block] int64, and the labels, [n] or
  // [n, block], int64.  Evaluation may have labels of kNoLabel.  Waits for the
  // loader.
  // Errors: FailedPrecondition  past the last one of the batch; DataLoss
  //         files changed, or too many of them cannot be read
  virtual absl::StatusOr<TensorList> NextMicroBatch() = 0;

  // Samples so far that could not be read and were left out.
  virtual int64_t unreadable() const { return 0; }
};

}  // namespace paceline
