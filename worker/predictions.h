// What the last stage of an inference job, or a replica of it, has given so
// far, in memory.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensor.h"
#include "worker/tensor_part.h"

namespace paceline {

// Lives on the compute thread.
class Predictions {
 public:
  // keep_outputs: InferSpec::outputs
  explicit Predictions(bool keep_outputs) : keep_outputs_(keep_outputs) {}

  // Shares the tensors' memory.
  //   first    the first of these samples in the test set
  //   outputs  [n, ..., classes] float32
  //   labels   [n, ...] int64
  // Errors: InvalidArgument  they do not fit together, or to those before
  absl::Status Add(int64_t first, const Tensor& outputs, const Tensor& labels);

  int64_t samples() const { return samples_; }

  // The tensors of core/model/predictions.h in pieces, as they were added.
  std::vector<TensorPart> Take() { return std::move(parts_); }

 private:
  const bool keep_outputs_;
  int64_t samples_ = 0;
  Shape sample_;  // of outputs, without n
  std::vector<TensorPart> parts_;
};

}  // namespace paceline
