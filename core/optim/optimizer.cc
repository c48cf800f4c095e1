#include "core/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "core/base/errors.h"

// This file is compiled with -O3 -fno-math-errno (CMakeLists.txt) so that its
// loops become SIMD.  Each of + - * / sqrt rounds correctly there as well, and
// nothing may be reassociated or fused, so the bytes stay those of plain
// scalar code.

namespace paceline {
namespace {

constexpr int kLanes = 8;

// The values of a parameter before and after an update.
struct Values {
  const float* before;  // null: in `after`
  float* after;
  size_t n;
};

// With weight decay and momentum known at compile time: a term that is not
// asked for must not be added as 0 * x, which is NaN for an infinite x.  And
// with kInPlace: the compiler knows that one memory is at most read, or that it
// is read and written at i only.
template <bool kInPlace, bool kDecay, bool kMomentum>
void Sgd(float rate, float scale, float decay, float momentum,
         const Values& values, const float* __restrict gradient,
         float* __restrict velocity) {
  float* __restrict after = values.after;
  const float* __restrict elsewhere = values.before;
  for (size_t i = 0; i < values.n; ++i) {
    const float before = kInPlace ? after[i] : elsewhere[i];
    float update = gradient[i] * scale;
    if constexpr (kDecay) update = update + decay * before;
    if constexpr (kMomentum) {
      velocity[i] = momentum * velocity[i] + update;
      update = velocity[i];
    }
    after[i] = before - rate * update;
  }
}

template <bool kInPlace>
void ApplySgd(const OptimizerSpec& optimizer, const StepVerdict& verdict,
              const Values& values, const float* gradient, float* velocity) {
  const bool decays = optimizer.weight_decay != 0;
  const bool has_momentum = velocity != nullptr;
  const auto update = decays ? (has_momentum ? Sgd<kInPlace, true, true>
                                             : Sgd<kInPlace, true, false>)
                             : (has_momentum ? Sgd<kInPlace, false, true>
                                             : Sgd<kInPlace, false, false>);
  update(verdict.learning_rate, verdict.gradient_scale,
         static_cast<float>(optimizer.weight_decay),
         static_cast<float>(optimizer.momentum), values, gradient, velocity);
}

// The factors of AdamW, each computed in float64 and rounded once.
struct AdamWScalars {
  float scale;
  float keep;  // what decoupled weight decay leaves of a parameter
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float bias_correction2_sqrt;
  float epsilon;
  float step_size;  // rate / bias_correction1
};

AdamWScalars ScalarsOf(const OptimizerSpec& optimizer,
                       const StepVerdict& verdict) {
  const double rate = verdict.learning_rate;
  return {.scale = verdict.gradient_scale,
          .keep = static_cast<float>(1 - rate * optimizer.weight_decay),
          .beta1 = static_cast<float>(optimizer.beta1),
          .one_minus_beta1 = static_cast<float>(1 - optimizer.beta1),
          .beta2 = static_cast<float>(optimizer.beta2),
          .one_minus_beta2 = static_cast<float>(1 - optimizer.beta2),
          .bias_correction2_sqrt = verdict.bias_correction2_sqrt,
          .epsilon = static_cast<float>(optimizer.epsilon),
          .step_size = static_cast<float>(rate / verdict.bias_correction1)};
}

template <bool kInPlace>
void AdamW(const AdamWScalars& s, const Values& values,
           const float* __restrict gradient, float* __restrict first,
           float* __restrict second) {
  const AdamWScalars c = s;  // a local copy: nothing below can alias it
  float* __restrict after = values.after;
  const float* __restrict elsewhere = values.before;
  for (size_t i = 0; i < values.n; ++i) {
    const float g = gradient[i] * c.scale;
    const float kept = (kInPlace ? after[i] : elsewhere[i]) * c.keep;
    const float m = first[i] * c.beta1 + g * c.one_minus_beta1;
    const float v = second[i] * c.beta2 + c.one_minus_beta2 * g * g;
    const float denominator =
        std::sqrt(v) / c.bias_correction2_sqrt + c.epsilon;
    first[i] = m;
    second[i] = v;
    after[i] = kept - c.step_size * m / denominator;
  }
}

template <bool kInPlace>
void Apply(const OptimizerSpec& optimizer, const StepVerdict& verdict,
           const Values& values, absl::Span<const float> gradient,
           absl::Span<const absl::Span<float>> state) {
  PACELINE_CHECK(!verdict.skip, verdict.why);
  PACELINE_CHECK_EQ(gradient.size(), values.n);
  PACELINE_CHECK_EQ(std::ssize(state), StateSlots(optimizer));
  for (const absl::Span<float> slot : state) {
    PACELINE_CHECK_EQ(slot.size(), values.n);
  }
  if (optimizer.name == "adamw") {
    AdamW<kInPlace>(ScalarsOf(optimizer, verdict), values, gradient.data(),
                    state[0].data(), state[1].data());
    return;
  }
  PACELINE_CHECK(optimizer.name == "sgd", optimizer.name);
  ApplySgd<kInPlace>(optimizer, verdict, values, gradient.data(),
                     state.empty() ? nullptr : state[0].data());
}

}  // namespace

int StateSlots(const OptimizerSpec& optimizer) {
  if (optimizer.name == "adamw") return 2;
  return optimizer.momentum != 0 ? 1 : 0;
}

void ApplyUpdate(const OptimizerSpec& optimizer, const StepVerdict& verdict,
                 absl::Span<float> parameter, absl::Span<const float> gradient,
                 absl::Span<const absl::Span<float>> state) {
  Apply</*kInPlace=*/true>(optimizer, verdict,
                           {nullptr, parameter.data(), parameter.size()},
                           gradient, state);
}

void ApplyUpdateTo(const OptimizerSpec& optimizer, const StepVerdict& verdict,
                   absl::Span<const float> before, absl::Span<float> parameter,
                   absl::Span<const float> gradient,
                   absl::Span<const absl::Span<float>> state) {
  PACELINE_CHECK_EQ(before.size(), parameter.size());
  Apply</*kInPlace=*/false>(optimizer, verdict,
                            {before.data(), parameter.data(), parameter.size()},
                            gradient, state);
}

double LearningRate(const LearningRateSpec& spec, int64_t step,
                    int64_t total_steps) {
  if (step < spec.warmup_steps) {
    return spec.base * static_cast<double>(step + 1) /
           static_cast<double>(spec.warmup_steps);
  }
  const int64_t since_warmup = step - spec.warmup_steps;
  if (spec.schedule == "cosine") {
    const int64_t span = std::max<int64_t>(total_steps - spec.warmup_steps, 1);
    const double progress = static_cast<double>(std::min(since_warmup, span)) /
                            static_cast<double>(span);
    return spec.minimum + (spec.base - spec.minimum) * 0.5 *
                              (1 + std::cos(std::numbers::pi * progress));
  }
  if (spec.schedule == "step") {
    const int64_t drops = since_warmup / std::max<int64_t>(spec.step_every, 1);
    return spec.base * std::pow(spec.gamma, static_cast<double>(drops));
  }
  PACELINE_CHECK(spec.schedule == "constant", spec.schedule);
  return spec.base;
}

void AddTo(absl::Span<float> sum, absl::Span<const float> values) {
  PACELINE_CHECK_EQ(sum.size(), values.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

double SquaredNorm(absl::Span<const absl::Span<const float>> pieces) {
  double lanes[kLanes] = {};
  size_t at = 0;
  const auto add = [&](double value) { lanes[at++ % kLanes] += value * value; };
  for (const absl::Span<const float> piece : pieces) {
    size_t i = 0;
    while (i < piece.size() && at % kLanes != 0) add(piece[i++]);
    for (; i + kLanes <= piece.size(); i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const double value = piece[i + lane];
        lanes[lane] += value * value;
      }
    }
    while (i < piece.size()) add(piece[i++]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

namespace {

// Returns the part of the statistics that is left after `folds` folds. Products
// alone, so that all CPUs get the same bits.
float Kept(int folds) {
  float kept = 1;
  for (int i = 0; i < folds; ++i) kept *= 1 - kBatchNormMomentum;
  return kept;
}

}  // namespace

void FoldStatistics(absl::Span<const float> seen, absl::Span<float> running) {
  PACELINE_CHECK_EQ(seen.size(), running.size());
  for (size_t i = 0; i < running.size(); ++i) {
    running[i] =
        (1 - kBatchNormMomentum) * running[i] + kBatchNormMomentum * seen[i];
  }
}

float StatisticsWeight(int micro_batch, int micro_batches) {
  return kBatchNormMomentum * Kept(micro_batches - 1 - micro_batch);
}

void AddStatistics(absl::Span<const float> seen, float weight,
                   absl::Span<float> sum) {
  PACELINE_CHECK_EQ(seen.size(), sum.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * seen[i];
}

void FoldSum(absl::Span<const float> sum, float weight, int micro_batches,
             absl::Span<float> running) {
  PACELINE_CHECK_EQ(sum.size(), running.size());
  if (!(weight > 0)) return;
  const float kept = Kept(micro_batches);
  for (size_t i = 0; i < running.size(); ++i) {
    running[i] = kept * running[i] + (1 - kept) * (sum[i] / weight);
  }
}

}  // namespace paceline
