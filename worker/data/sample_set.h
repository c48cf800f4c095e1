// A data set: samples by number, in two splits.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/model/batch.h"

namespace paceline {

// Immutable once opened; several loader threads read it at the same time.
class SampleSet {
 public:
  virtual ~SampleSet() = default;

  // Samples of the training (kTrain) or test (kEvaluate) split.
  virtual int64_t samples(BatchPhase split) const = 0;
  // Of one sample.
  virtual const Shape& shape() const = 0;

  // Writes the samples numbered `indices` one after the other.
  //   values  [indices, ...shape] float32
  //   labels  [indices] int64, in [0, classes)
  // The same arguments give the same bytes on every machine.
  virtual absl::Status Load(BatchPhase split, absl::Span<const int32_t> indices,
                            absl::Span<float> values,
                            absl::Span<int64_t> labels) const = 0;
};

}  // namespace paceline
