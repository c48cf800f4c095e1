// Keeps in memory what the last stage of an inference job, or a replica of it,
// has given so far.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensor.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

// Lives on the compute thread.
class Predictions {
 public:
  //   keep_outputs  InferSpec::outputs
  //   most_bytes    of all that is kept; 0: no limit
  explicit Predictions(bool keep_outputs, int64_t most_bytes = 0)
      : keep_outputs_(keep_outputs), most_bytes_(most_bytes) {}

  // Says, before the first Add(), how many samples will be added in all.
  void Expect(int64_t samples) { expected_ = samples; }

  // Shares the tensors' memory.
  //   first    the first of these samples in the test set
  //   outputs  [n, ..., classes] float32
  //   labels   [n, ...] int64
  // Errors: InvalidArgument  they do not fit together, or to those before
  //         ResourceExhausted  they are the first, and all that are expected
  //                            would take more than most_bytes
  absl::Status Add(int64_t first, const Tensor& outputs, const Tensor& labels);

  int64_t samples() const { return samples_; }
  // Classes that are kNoClass.
  int64_t without_class() const { return without_class_; }
  // In the log, where there are any.
  void WarnOfNoClass() const;

  // The tensors of core/model/predictions.h in pieces, as they were added.
  std::vector<TensorPart> Take() { return std::move(parts_); }

 private:
  absl::Status CheckRoom(int64_t sample_bytes) const;

  const bool keep_outputs_;
  const int64_t most_bytes_;
  int64_t expected_ = 0;  // samples; 0: not known
  int64_t samples_ = 0;
  int64_t without_class_ = 0;
  Shape sample_;  // of outputs, without n
  std::vector<TensorPart> parts_;
};

}  // namespace paceline
