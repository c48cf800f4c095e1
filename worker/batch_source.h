// Where the first stage's micro-batches come from.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/model/batch.h"

namespace paceline {

// Used by the compute thread alone; loads ahead on threads of its own.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Updates in the whole job.
  virtual int64_t total_steps() const = 0;

  // The next batch of the walk; nothing after the final one.
  virtual absl::StatusOr<std::optional<BatchInfo>> NextBatch() = 0;

  // The next micro-batch of the batch last returned, in ascending order: the
  // samples [n, ...] float32 and their labels [n] int64.  Waits for the loader.
  // Errors: FailedPrecondition  past the last one of the batch.
  virtual absl::StatusOr<TensorList> NextMicroBatch() = 0;
};

}  // namespace paceline
