// Running statistics of batch normalisation, by the arithmetic of this folder.
#pragma once

#include "absl/types/span.h"

namespace paceline {

// How much one micro-batch counts: torch.nn.BatchNorm2d's default.
constexpr float kBatchNormMomentum = 0.1f;

// Moves `running` towards what one micro-batch saw, element by element:
//   running = (1 - momentum) * running + momentum * seen
// Both [channels] float32 of equal size: a mean, or an unbiased variance.
void FoldStatistics(absl::Span<const float> seen, absl::Span<float> running);

// The same in two halves, for micro-batches that several machines computed.
// FoldStatistics() over all `micro_batches` of a step, ascending, gives
//   running = (1 - share) * running + share * (sum / weight)
// with sum and weight added up over the micro-batches, but for rounding.
// Without some of them sum / weight is the mean of the others.

// Returns how much micro-batch `micro_batch` of so many counts in the sum.
float StatisticsWeight(int micro_batch, int micro_batches);
// sum += weight * seen, element by element.
void AddStatistics(absl::Span<const float> seen, float weight,
                   absl::Span<float> sum);
// The second half; nothing without weight.
void FoldSum(absl::Span<const float> sum, float weight, int micro_batches,
             absl::Span<float> running);

}  // namespace paceline
