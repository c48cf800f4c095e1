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

}  // namespace paceline
