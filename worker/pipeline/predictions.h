// The results of an inference job: what its last stage, or a replica of it,
// gives, as the tensors of core/weights/predictions.h.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensor.h"
#include "core/data/batch.h"
#include "core/schedule/route.h"
#include "paceline/v1/coordinator.pb.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

// Takes predictions as they are made, on the compute thread.
class PredictionSink {
 public:
  virtual ~PredictionSink() = default;
  //   parts  share the tensors' memory; they lie at fixed places
  //   mark   all that it tells of is in these and earlier parts
  // Errors: those that end the run
  virtual absl::Status Add(std::vector<TensorPart> parts,
                           const std::optional<v1::PredictedMark>& mark) = 0;
};

// Lives on the compute thread.
class Predictions {
 public:
  //   keep_outputs  InferSpec::outputs
  //   turns         the micro-batches of this replica
  //   sink          outlives this
  //   skipped       SkippedRow()
  Predictions(bool keep_outputs, Turns turns, PredictionSink& sink,
              std::vector<uint8_t> skipped = {})
      : keep_outputs_(keep_outputs),
        turns_(std::move(turns)),
        sink_(sink),
        skipped_(std::move(skipped)) {}

  // Takes the predictions of a batch of one micro-batch; the batches of this
  // replica come in order.
  //   first    the first of these samples in the test set
  //   outputs  [n, ..., classes] float32
  //   labels   [n, ...] int64
  // Errors: InvalidArgument  they do not fit together, or to those before;
  //         else the sink's
  absl::Status Add(const BatchInfo& batch, int64_t first, const Tensor& outputs,
                   const Tensor& labels, const LossSums& sums);

  int64_t samples() const { return samples_; }
  // Classes that are kNoClass.
  int64_t without_class() const { return without_class_; }
  // In the log, where there are any.
  void WarnOfNoClass() const;

 private:
  // Nothing: others of this replica come before the next place of a mark.
  std::optional<v1::PredictedMark> MarkAfter(const BatchInfo& batch) const;

  const bool keep_outputs_;
  const Turns turns_;
  PredictionSink& sink_;
  const std::vector<uint8_t> skipped_;
  int64_t samples_ = 0;
  int64_t without_class_ = 0;
  int64_t not_finite_ = 0;  // samples
  LossSums sums_;
  Shape sample_;  // of outputs, without n
};

}  // namespace paceline
