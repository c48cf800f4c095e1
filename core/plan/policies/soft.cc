#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/base/random.h"
#include "core/plan/policies/policies.h"
#include "core/plan/policies/soft_relaxation.h"

namespace paceline {
namespace {

constexpr int kSettleSteps = 32;
constexpr uint64_t kRescues = 4;  // extra rounds when nothing fits
constexpr double kFirstRate = 0.3;
constexpr double kCoolRate = 0.88;

// The annealing changes each number by the same factor at every level.
constexpr int kLevels = 16;
constexpr double kFirstMembership = 1.0;
constexpr double kCoolMembership = 0.88;
constexpr double kCoolWidth = 0.8;
constexpr double kLeastWidth = 0.3;
constexpr double kFirstPenalty = 0.5;
constexpr double kGrowPenalty = 1.25;

}  // namespace

std::vector<double> RandomLogits(const Relaxation& relaxation, int stages,
                                 uint64_t seed) {
  SplitMix64 random(MixSeed({seed, 0x736f6674}));
  std::vector<double> logits(relaxation.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double noise = static_cast<double>(random.Unit()) - 0.5;
    logits[i] = i < static_cast<size_t>(stages) ? 0.2 * noise : 3 * noise;
  }
  return logits;
}

namespace {

// Adam on the first `count` of some logits.
class Descent {
 public:
  Descent(size_t count, Relaxation& relaxation, std::vector<double>& logits)
      : relaxation_(relaxation),
        logits_(logits),
        mean_(count, 0),
        square_(count, 0) {}

  // The averages forget faster than with the paper's 0.9 and 0.999: there are
  // few steps, and the softness changes meanwhile.
  void Step(const Softness& soft, double rate) {
    constexpr double kMean = 0.6;
    constexpr double kSquare = 0.92;
    relaxation_.Loss(logits_, soft, gradient_);
    mean_left_ *= kMean;
    square_left_ *= kSquare;
    for (size_t j = 0; j < mean_.size(); ++j) {
      const double g = gradient_[j];
      if (!std::isfinite(g)) continue;
      mean_[j] = kMean * mean_[j] + (1 - kMean) * g;
      square_[j] = kSquare * square_[j] + (1 - kSquare) * g * g;
      logits_[j] -= rate * (mean_[j] / (1 - mean_left_)) /
                    (std::sqrt(square_[j] / (1 - square_left_)) + 1e-8);
    }
  }

 private:
  Relaxation& relaxation_;
  std::vector<double>& logits_;
  std::vector<double> gradient_, mean_, square_;
  double mean_left_ = 1;
  double square_left_ = 1;
};

}  // namespace

void Descend(const CostTable& table, int steps, Relaxation& relaxation,
             std::vector<double>& logits) {
  Descent descent(logits.size(), relaxation, logits);
  Softness soft;
  soft.cut_width = std::max(1.0, table.layers() / 8.0);
  soft.membership = kFirstMembership;
  soft.penalty = kFirstPenalty;
  double rate = kFirstRate;
  for (int level = 0; level < kLevels; ++level) {
    soft.sharpness = 2 + 4 * level / kLevels;
    for (int i = 0; i < steps / kLevels; ++i) descent.Step(soft, rate);
    soft.membership *= kCoolMembership;
    soft.cut_width = std::max(kLeastWidth, soft.cut_width * kCoolWidth);
    soft.penalty *= kGrowPenalty;
    rate *= kCoolRate;
  }
}

void SettleCuts(const CostTable& table, int steps,
                const std::vector<WalkStage>& placed, Relaxation& relaxation,
                std::vector<double>& logits) {
  constexpr double kSure = 50;
  const size_t stages = placed.size();
  std::fill(logits.begin() + static_cast<std::ptrdiff_t>(stages), logits.end(),
            -kSure);
  for (int device = 0; device < table.devices(); ++device) {
    logits[stages + static_cast<size_t>(device) * (stages + 1) + stages] = 0;
  }
  for (size_t s = 0; s < stages; ++s) {
    for (const int device : placed[s].devices) {
      logits[stages + static_cast<size_t>(device) * (stages + 1) + s] = kSure;
    }
  }
  Descent descent(stages, relaxation, logits);
  Softness soft;
  soft.cut_width = 1;
  soft.penalty = 10;
  double rate = kFirstRate;
  for (int level = 0; level < kLevels; ++level) {
    soft.sharpness = 4 + 3 * level / kLevels;
    for (int i = 0; i < steps / kLevels; ++i) descent.Step(soft, rate);
    soft.cut_width = std::max(kLeastWidth, soft.cut_width * kCoolWidth);
    rate *= kCoolRate;
  }
}

namespace {

// Returns all numbers up to 8, then each about half as large again.
std::vector<int> StagesToTry(const CostTable& table) {
  if (table.problem().stages > 0) return {table.problem().stages};
  const int most = std::min(table.layers(), table.devices());
  std::vector<int> tried;
  for (int stages = 1; stages < most;) {
    tried.push_back(stages);
    stages += stages < 8 ? 1 : stages / 2;
  }
  tried.push_back(most);
  return tried;
}

// Small problems finish in a millisecond for each number of stages.
int StartsOf(const CostTable& table) {
  constexpr int kMostStarts = 4;
  constexpr int kSmall = 128;  // layers + devices
  return table.layers() + table.devices() <= kSmall ? kMostStarts : 1;
}

// With more devices the memberships need more steps to settle.
int StepsOf(const CostTable& table) {
  constexpr int kFewDevices = 6;
  return table.devices() <= kFewDevices ? 64 : 160;
}

// As many steps as trying each device in each stage twice.
int64_t WalkSteps(const CostTable& table, int stages) {
  return int64_t{2} * table.devices() * (stages + 1) + 48;
}

// Descends with `stages` stages from some starts, and walks downhill from the
// rounded placements.
void Try(const CostTable& table, int stages, uint64_t seed, Walk& walk) {
  Relaxation relaxation(table, stages);
  for (int start = 0; start < StartsOf(table); ++start) {
    std::vector<double> logits =
        RandomLogits(relaxation, stages,
                     MixSeed({seed, static_cast<uint64_t>(stages),
                              static_cast<uint64_t>(start)}));
    Descend(table, StepsOf(table), relaxation, logits);
    const std::vector<WalkStage> placed = relaxation.Round(logits);
    SettleCuts(table, kSettleSteps, placed, relaxation, logits);
    // Where cheap and expensive cuts lie close together the second descent may
    // get worse, so both results are tried.
    walk.Run(placed, WalkSteps(table, stages), 0);
    walk.Run(relaxation.Round(logits), WalkSteps(table, stages), 0);
  }
}

}  // namespace

absl::StatusOr<Placement> SoftPlacement(const PlanProblem& problem,
                                        uint64_t seed) {
  const CostTable table(problem);
  Walk walk(table, MixSeed({seed, 0x736f6674}));
  for (const int stages : StagesToTry(table)) Try(table, stages, seed, walk);
  walk.CountOnlyExcess();
  for (uint64_t rescue = 1; !walk.found() && rescue <= kRescues; ++rescue) {
    for (const int stages : StagesToTry(table)) {
      Try(table, stages, MixSeed({seed, rescue}), walk);
    }
  }
  return walk.BestPlacement();
}

}  // namespace paceline
