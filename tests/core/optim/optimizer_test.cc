#include "core/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/job/spec/job_spec.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr int kSize = 1003;  // no multiple of any SIMD width
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

OptimizerSpec Momentum() {
  OptimizerSpec optimizer;
  optimizer.momentum = 0.9;
  optimizer.weight_decay = 5e-4;
  return optimizer;
}

OptimizerSpec AdamW() {
  OptimizerSpec optimizer;
  optimizer.name = "adamw";
  optimizer.weight_decay = 0.05;
  return optimizer;
}

// The scalars of the update after `step` updates, as float arithmetic has them
// at hand; no libm, so that the golden hashes depend on nothing else.
StepVerdict Verdict(int step) {
  StepVerdict verdict;
  verdict.step = step;
  verdict.gradient_scale = 1.0f / 64;
  verdict.learning_rate = 0.1f / static_cast<float>(step + 1);
  float power1 = 1, power2 = 1;
  for (int i = 0; i <= step; ++i) {
    power1 *= 0.9f;
    power2 *= 0.999f;
  }
  verdict.bias_correction1 = 1 - power1;
  verdict.bias_correction2_sqrt = std::sqrt(1 - power2);
  return verdict;
}

std::vector<float> Draw(SplitMix64& random, float amplitude) {
  std::vector<float> values(kSize);
  for (float& value : values) {
    value = amplitude * (2 * random.Unit() - 1);
  }
  return values;
}

// A parameter with its optimizer's state.
struct Trained {
  std::vector<float> parameter;
  std::vector<std::vector<float>> state;

  std::vector<absl::Span<float>> Slots() {
    std::vector<absl::Span<float>> slots;
    for (std::vector<float>& slot : state) {
      slots.push_back(absl::MakeSpan(slot));
    }
    return slots;
  }
};

using Update = void (*)(const OptimizerSpec&, const StepVerdict&,
                        absl::Span<float>, absl::Span<const float>,
                        absl::Span<const absl::Span<float>>);

// Twenty updates with gradients drawn from a fixed seed.
Trained Train(const OptimizerSpec& optimizer, Update update) {
  SplitMix64 random(42);
  Trained trained;
  trained.parameter = Draw(random, 1);
  trained.state.assign(StateSlots(optimizer), std::vector<float>(kSize));
  for (int step = 0; step < 20; ++step) {
    const std::vector<float> gradient = Draw(random, 30);
    update(optimizer, Verdict(step), absl::MakeSpan(trained.parameter),
           gradient, trained.Slots());
  }
  return trained;
}

// FNV-1a over the bytes of parameter and state.
uint64_t Hash(const Trained& trained) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](const std::vector<float>& values) {
    for (const float value : values) {
      uint8_t bytes[sizeof(value)];
      std::memcpy(bytes, &value, sizeof(value));
      for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
    }
  };
  add(trained.parameter);
  for (const std::vector<float>& slot : trained.state) add(slot);
  return hash;
}

// Rounds to float32 here and now: no fusing, no SIMD, no excess precision.
float Rounded(float value) {
  volatile float rounded = value;
  return rounded;
}

void NaiveSgd(const OptimizerSpec& optimizer, const StepVerdict& verdict,
              absl::Span<float> parameter, absl::Span<const float> gradient,
              absl::Span<const absl::Span<float>> state) {
  const float decay = static_cast<float>(optimizer.weight_decay);
  const float momentum = static_cast<float>(optimizer.momentum);
  for (size_t i = 0; i < parameter.size(); ++i) {
    float g = Rounded(gradient[i] * verdict.gradient_scale);
    if (decay != 0) g = Rounded(g + Rounded(decay * parameter[i]));
    if (momentum != 0) {
      g = Rounded(Rounded(momentum * state[0][i]) + g);
      state[0][i] = g;
    }
    parameter[i] = Rounded(parameter[i] - Rounded(verdict.learning_rate * g));
  }
}

void NaiveAdamW(const OptimizerSpec& optimizer, const StepVerdict& verdict,
                absl::Span<float> parameter, absl::Span<const float> gradient,
                absl::Span<const absl::Span<float>> state) {
  const float keep = static_cast<float>(1 - double{verdict.learning_rate} *
                                                optimizer.weight_decay);
  const float b1 = static_cast<float>(optimizer.beta1);
  const float b2 = static_cast<float>(optimizer.beta2);
  const float c1 = static_cast<float>(1 - optimizer.beta1);
  const float c2 = static_cast<float>(1 - optimizer.beta2);
  const float epsilon = static_cast<float>(optimizer.epsilon);
  const float rate = Rounded(verdict.learning_rate / verdict.bias_correction1);
  for (size_t i = 0; i < parameter.size(); ++i) {
    const float g = Rounded(gradient[i] * verdict.gradient_scale);
    float& m = state[0][i];
    float& v = state[1][i];
    m = Rounded(Rounded(m * b1) + Rounded(g * c1));
    v = Rounded(Rounded(v * b2) + Rounded(Rounded(c2 * g) * g));
    const float denominator =
        Rounded(Rounded(Rounded(std::sqrt(v)) / verdict.bias_correction2_sqrt) +
                epsilon);
    parameter[i] = Rounded(Rounded(parameter[i] * keep) -
                           Rounded(Rounded(rate * m) / denominator));
  }
}

TEST(ApplyUpdate, GivesTheGoldenBytes) {
  // Computed once, x86-64, g++ 12.2.  A change here changes the weights
  // of every job: it is a change of format, not of a test.
  EXPECT_EQ(Hash(Train(Momentum(), ApplyUpdate)), 7400907443889292624u);
  EXPECT_EQ(Hash(Train(AdamW(), ApplyUpdate)), 901558686000859395u);
}

TEST(ApplyUpdate, SgdEqualsPlainScalarCodeBitForBit) {
  for (const double momentum : {0.0, 0.9}) {
    for (const double decay : {0.0, 5e-4}) {
      OptimizerSpec optimizer;
      optimizer.momentum = momentum;
      optimizer.weight_decay = decay;

      const Trained ours = Train(optimizer, ApplyUpdate);
      const Trained naive = Train(optimizer, NaiveSgd);

      EXPECT_EQ(ours.parameter, naive.parameter) << momentum << " " << decay;
      EXPECT_EQ(ours.state, naive.state) << momentum << " " << decay;
    }
  }
}

TEST(ApplyUpdate, AdamWEqualsPlainScalarCodeBitForBit) {
  const Trained ours = Train(AdamW(), ApplyUpdate);
  const Trained naive = Train(AdamW(), NaiveAdamW);

  EXPECT_EQ(ours.parameter, naive.parameter);
  EXPECT_EQ(ours.state, naive.state);
}

// Out of place, into memory that holds no number.
void UpdateElsewhere(const OptimizerSpec& optimizer, const StepVerdict& verdict,
                     absl::Span<float> parameter,
                     absl::Span<const float> gradient,
                     absl::Span<const absl::Span<float>> state) {
  const std::vector<float> before(parameter.begin(), parameter.end());
  std::vector<float> read = before;
  std::fill(parameter.begin(), parameter.end(),
            std::numeric_limits<float>::quiet_NaN());
  ApplyUpdateTo(optimizer, verdict, read, parameter, gradient, state);
  EXPECT_EQ(read, before);
}

TEST(ApplyUpdateTo, MakesTheBytesOfAnUpdateInPlace) {
  std::vector<OptimizerSpec> optimizers = {OptimizerSpec(), Momentum(),
                                           AdamW()};
  for (const double momentum : {0.0, 0.9}) {
    optimizers.emplace_back().momentum = momentum;
    optimizers.back().weight_decay = 0.01;
  }
  for (const OptimizerSpec& optimizer : optimizers) {
    EXPECT_EQ(Hash(Train(optimizer, UpdateElsewhere)),
              Hash(Train(optimizer, ApplyUpdate)))
        << optimizer.name << " " << optimizer.momentum;
  }
}

TEST(ApplyUpdateToDeathTest, RefusesAnotherSizeBefore) {
  std::vector<float> parameter = {1, 2};
  const std::vector<float> before = {1};
  EXPECT_DEATH(ApplyUpdateTo(OptimizerSpec(), StepVerdict(), before,
                             absl::MakeSpan(parameter), parameter, {}),
               "parameter.size.*: 1 and 2");
}

TEST(ApplyUpdate, DoesNotDependOnWhereAParameterIsCut) {
  const OptimizerSpec optimizer = AdamW();
  const Trained whole = Train(optimizer, ApplyUpdate);

  const Trained halves =
      Train(optimizer,
            [](const OptimizerSpec& optimizer, const StepVerdict& verdict,
               absl::Span<float> parameter, absl::Span<const float> gradient,
               absl::Span<const absl::Span<float>> state) {
              constexpr size_t kCut = 501;  // odd: the tails fall elsewhere
              for (const size_t first : {size_t{0}, kCut}) {
                const size_t n = first == 0 ? kCut : parameter.size() - kCut;
                const absl::Span<float> part[] = {state[0].subspan(first, n),
                                                  state[1].subspan(first, n)};
                ApplyUpdate(optimizer, verdict, parameter.subspan(first, n),
                            gradient.subspan(first, n), part);
              }
            });

  EXPECT_EQ(whole.parameter, halves.parameter);
}

TEST(ApplyUpdateDeathTest, RefusesASkippedStepAndWrongSizes) {
  const OptimizerSpec sgd;
  StepVerdict skip;
  skip.skip = true;
  skip.why = "skipped: NaN";
  std::vector<float> parameter = {1, 2};
  const std::vector<float> gradient = {1};

  EXPECT_DEATH(ApplyUpdate(sgd, skip, absl::MakeSpan(parameter), parameter, {}),
               "skipped: NaN");
  EXPECT_DEATH(
      ApplyUpdate(sgd, StepVerdict(), absl::MakeSpan(parameter), gradient, {}),
      "values.n.: 1 and 2");
  EXPECT_DEATH(ApplyUpdate(AdamW(), StepVerdict(), absl::MakeSpan(parameter),
                           parameter, {}),
               "StateSlots.optimizer..: 0 and 2");
}

TEST(SquaredNorm, AddsEightLanesInLaneOrder) {
  SplitMix64 random(7);
  const std::vector<float> values = Draw(random, 1e3f);
  for (const size_t size : {0, 1, 7, 8, 9, 1000, kSize}) {
    volatile double lanes[8] = {};
    for (size_t i = 0; i < size; ++i) {
      volatile double square = double{values[i]} * double{values[i]};
      lanes[i % 8] = lanes[i % 8] + square;
    }
    volatile double expected = 0;
    for (int lane = 0; lane < 8; ++lane) expected = expected + lanes[lane];

    const auto whole = absl::MakeConstSpan(values).first(size);
    EXPECT_EQ(SquaredNorm(whole), expected) << size;
    for (const size_t first : {1, 5, 8, 13, 900}) {
      const size_t second = std::min(size, 2 * first);
      const std::vector<absl::Span<const float>> pieces = {
          whole.first(std::min(size, first)),
          whole.subspan(std::min(size, first), first), whole.subspan(second)};
      EXPECT_EQ(SquaredNorm(pieces), expected) << size << " at " << first;
    }
  }
}

TEST(SquaredNorm, ShowsNaNAndInfinity) {
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    for (const int at : {0, 8, kSize - 1}) {
      std::vector<float> values(kSize, 1.0f);
      values[at] = bad;

      EXPECT_FALSE(std::isfinite(SquaredNorm(values))) << bad << " at " << at;
    }
  }
}

struct Case {
  LearningRateSpec spec;
  int64_t total_steps;
  std::vector<std::pair<int64_t, double>> rates;  // by step
};

TEST(LearningRate, IsWhatTheScheduleAndTheWarmUpSay) {
  const Case cases[] = {
      {{.base = 0.8, .schedule = "constant"}, 100, {{0, 0.8}, {99, 0.8}}},
      // The last step of the warm-up has the base.
      {{.base = 0.8, .schedule = "constant", .warmup_steps = 4},
       100,
       {{0, 0.2}, {1, 0.4}, {3, 0.8}, {4, 0.8}}},
      {{.base = 0.8, .schedule = "cosine", .minimum = 0.2},
       100,
       {{0, 0.8}, {50, 0.5}, {100, 0.2}, {1000, 0.2}}},
      // Counted from the end of the warm-up.
      {{.base = 0.8, .schedule = "cosine", .warmup_steps = 20},
       120,
       {{19, 0.8}, {20, 0.8}, {70, 0.4}}},
      // A warm-up that is as long as the job.
      {{.base = 0.8, .schedule = "cosine", .warmup_steps = 10},
       10,
       {{9, 0.8}, {10, 0.8}}},
      {{.base = 0.8,
        .schedule = "step",
        .warmup_steps = 2,
        .step_every = 10,
        .gamma = 0.5},
       100,
       {{2, 0.8}, {11, 0.8}, {12, 0.4}, {32, 0.1}}}};
  for (const Case& each : cases) {
    for (const auto& [step, rate] : each.rates) {
      EXPECT_NEAR(LearningRate(each.spec, step, each.total_steps), rate, 1e-12)
          << each.spec.schedule << " " << step;
    }
  }
}

TEST(FoldStatistics, MovesATenthOfTheWay) {
  std::vector<float> running = {0, 1, -2};
  const std::vector<float> seen = {1, 1, 8};

  FoldStatistics(seen, absl::MakeSpan(running));

  EXPECT_FLOAT_EQ(running[0], 0.1f);
  EXPECT_FLOAT_EQ(running[1], 1);
  EXPECT_FLOAT_EQ(running[2], -1);
}

TEST(FoldStatistics, DependsOnTheOrder) {
  const std::vector<float> a = {1}, b = {2};
  std::vector<float> ab = {0}, ba = {0};

  FoldStatistics(a, absl::MakeSpan(ab));
  FoldStatistics(b, absl::MakeSpan(ab));
  FoldStatistics(b, absl::MakeSpan(ba));
  FoldStatistics(a, absl::MakeSpan(ba));

  EXPECT_NE(ab, ba);
}

// Two machines have every other micro-batch.
TEST(FoldSum, FoldsTheSumsOfSeveralMachinesAsOneWouldFoldEach) {
  const std::vector<std::vector<float>> seen = {{1}, {-2}, {5}, {3}, {8}};
  std::vector<float> alone = {4}, together = {4}, sum = {0};
  float weight = 0;

  for (const auto& each : seen) FoldStatistics(each, absl::MakeSpan(alone));
  for (const int i : {0, 2, 4, 1, 3}) {
    AddStatistics(seen[i], StatisticsWeight(i, 5), absl::MakeSpan(sum));
    weight += StatisticsWeight(i, 5);
  }
  FoldSum(sum, weight, 5, absl::MakeSpan(together));

  EXPECT_NEAR(together[0], alone[0], 1e-6);
}

TEST(FoldSum, TakesTheMeanOfThoseThatAreThere) {
  std::vector<float> running = {4}, sum = {0};

  AddStatistics({7}, StatisticsWeight(2, 5), absl::MakeSpan(sum));
  FoldSum(sum, StatisticsWeight(2, 5), 5, absl::MakeSpan(running));
  EXPECT_NEAR(running[0], 7 - 3 * std::pow(0.9, 5), 1e-5);

  FoldSum({0}, 0, 5, absl::MakeSpan(running));
  EXPECT_NEAR(running[0], 7 - 3 * std::pow(0.9, 5), 1e-5);
}

}  // namespace
}  // namespace paceline
