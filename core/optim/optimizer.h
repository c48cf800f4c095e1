// Optimizers as elementwise code over spans: + - * / sqrt only, one rounding
// an operation (-ffp-contract=off), so that every CPU gets the same bytes.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/job/spec/job_spec.h"
#include "core/optim/step_gate.h"

namespace paceline {

// How many float32 of state an optimizer keeps per element: sgd 0, or 1 with
// momentum (the velocity); adamw 2 (first, then second moment).
int StateSlots(const OptimizerSpec& optimizer);

// One update of one parameter.
//
//   parameter  [n] float32, written
//   gradient   [n] float32: the SUM over the batch; multiplied by
//              verdict.gradient_scale here and nowhere else
//   state      StateSlots() spans of [n] float32, written; zeros at first
//
// sgd: as torch.optim.SGD (v = momentum * v + g, p -= lr * v; the first step
// starts from v = 0, which gives torch's v = g).  adamw: Loshchilov and Hutter
// 2019, Algorithm 2, in torch's order of operations.  The rates come from the
// verdict.  verdict.skip must be false.
void ApplyUpdate(const OptimizerSpec& optimizer, const StepVerdict& verdict,
                 absl::Span<float> parameter, absl::Span<const float> gradient,
                 absl::Span<const absl::Span<float>> state);

// The same out of place, for a caller that keeps the old values: `parameter`
// becomes what ApplyUpdate() would make of `before`, in one pass over both.
//
//   before     [n] float32, not written; no part of `parameter`
//   parameter  [n] float32, written, never read
void ApplyUpdateTo(const OptimizerSpec& optimizer, const StepVerdict& verdict,
                   absl::Span<const float> before, absl::Span<float> parameter,
                   absl::Span<const float> gradient,
                   absl::Span<const absl::Span<float>> state);

// The rate of the update that takes place after `step` updates (step >= 0).
// Warm-up is linear: (step + 1) / warmup_steps of the base rate; cosine
// (Loshchilov and Hutter 2017) and step drops count from its end.
double LearningRate(const LearningRateSpec& spec, int64_t step,
                    int64_t total_steps);

// sum[i] += values[i].  Same sizes.
void AddTo(absl::Span<float> sum, absl::Span<const float> values);

// Sum of squares in float64, eight lanes that are added in lane order: the
// same on every CPU, and however the values are cut into pieces.  NaN or
// infinity in them shows in the result.
double SquaredNorm(absl::Span<const absl::Span<const float>> pieces);
inline double SquaredNorm(absl::Span<const float> values) {
  return SquaredNorm(absl::MakeConstSpan(&values, 1));
}

// --- running statistics of batch normalisation ---

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

// Returns the weight of micro-batch `micro_batch` in the sum.
float StatisticsWeight(int micro_batch, int micro_batches);
// sum += weight * seen, element by element.
void AddStatistics(absl::Span<const float> seen, float weight,
                   absl::Span<float> sum);
// The second half; nothing without weight.
void FoldSum(absl::Span<const float> sum, float weight, int micro_batches,
             absl::Span<float> running);

}  // namespace paceline
