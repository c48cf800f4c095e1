// What the last stage of an inference job has given so far, in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensor.h"
#include "worker/stage_engine.h"

namespace paceline {

// Lives on the compute thread.
class Predictions {
 public:
  // keep_outputs: InferSpec::outputs
  explicit Predictions(bool keep_outputs) : keep_outputs_(keep_outputs) {}

  // outputs  [n, ..., classes] float32
  // labels   [n, ...] int64
  // Errors: InvalidArgument  they do not fit together, or to those before
  absl::Status Add(const Tensor& outputs, const Tensor& labels);

  int64_t samples() const { return samples_; }

  // The tensors of core/model/predictions.h, over all that was added.
  std::vector<NamedTensor> Take();

 private:
  const bool keep_outputs_;
  int64_t samples_ = 0;
  Shape sample_;  // of outputs, without n
  std::vector<int64_t> classes_;
  std::vector<int64_t> labels_;
  std::vector<float> outputs_;
};

}  // namespace paceline
