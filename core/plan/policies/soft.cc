#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/plan/policies/policies.h"
#include "core/plan/policies/soft_relaxation.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

constexpr int kSettleSteps = 32;
constexpr int kPasses = 2;
constexpr int kRescues = 4;  // rounds more when nothing fits
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

  // Shorter memories than the paper's 0.9 and 0.999: there are few steps, and
  // the softness changes under them.
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

// Placements are compared first by whether they fit, then by how fast they are.
struct Score {
  double excess = HUGE_VAL;
  double seconds = HUGE_VAL;

  friend bool operator<(const Score& a, const Score& b) {
    return a.excess != b.excess ? a.excess < b.excess : a.seconds < b.seconds;
  }
};

// One look around a rounded placement.
class Mender {
 public:
  explicit Mender(const CostTable& table) : table_(table), state_(table) {}

  Score ScoreOf(const std::vector<WalkStage>& placed) {
    state_.Reset(placed);
    return ScoreNow();
  }

  Score Mend(std::vector<WalkStage> placed, int passes) {
    state_.Reset(std::move(placed));
    score_ = ScoreNow();
    state_.Keep();
    for (int pass = 0; pass < passes; ++pass) {
      const Score before = score_;
      Cuts();
      Devices();
      if (!(score_ < before)) break;
    }
    return score_;
  }

  Placement ToPlacement() const { return state_.ToPlacement(); }

 private:
  Score ScoreNow() {
    const WalkCost cost = state_.Evaluate();
    return {cost.excess, cost.step_seconds};
  }

  bool Decide() {
    const Score now = ScoreNow();
    const bool better = now < score_;
    if (better) {
      state_.Keep();
      score_ = now;
    } else {
      state_.Undo();
    }
    return better;
  }

  void Cuts() {
    for (int s = 1; s < state_.size(); ++s) {
      for (const int by : {-1, 1}) {
        for (;;) {
          const int to = state_.stage(s).layers.first + by;
          if (to <= state_.stage(s - 1).layers.first ||
              to >= state_.stage(s).layers.last) {
            break;
          }
          state_.MoveCut(s, to);
          if (!Decide()) break;
        }
      }
    }
  }

  int StageOf(int device) const {
    for (int s = 0; s < state_.size(); ++s) {
      const std::vector<int>& devices = state_.stage(s).devices;
      if (std::binary_search(devices.begin(), devices.end(), device)) return s;
    }
    return -1;
  }

  void Devices() {
    for (int device = 0; device < table_.devices(); ++device) {
      for (int to = -1; to < state_.size(); ++to) Put(device, to);
    }
  }

  // Tries `device` in stage `to`, -1: left out; in the place of a stage's only
  // device, which takes its place in turn.
  void Put(int device, int to) {
    const int from = StageOf(device);
    if (from == to) return;
    const bool alone = from >= 0 && state_.stage(from).devices.size() == 1;
    if (alone && to < 0) return;
    if (!alone && (to < 0 || table_.problem().replicas)) {
      if (from >= 0) state_.RemoveDevice(from, device);
      if (to >= 0) state_.AddDevice(to, device);
      if (Decide() || to < 0) return;
    }
    if (state_.stage(to).devices.size() > 1) return;
    const int other = state_.stage(to).devices[0];
    if (from >= 0) state_.RemoveDevice(from, device);
    state_.RemoveDevice(to, other);
    state_.AddDevice(to, device);
    if (from >= 0) state_.AddDevice(from, other);
    Decide();
  }

  const CostTable& table_;
  WalkState state_;
  Score score_;
};

// All numbers up to 8, then some on a scale of halves.
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

// More devices need longer to find their places.
int StepsOf(const CostTable& table) {
  constexpr int kFewDevices = 6;
  return table.devices() <= kFewDevices ? 64 : 160;
}

// The best of all descents.
class Best {
 public:
  explicit Best(const CostTable& table) : table_(table), mender_(table) {}

  void Try(int stages, int starts, uint64_t seed) {
    Relaxation relaxation(table_, stages);
    for (int start = 0; start < starts; ++start) {
      std::vector<double> logits =
          RandomLogits(relaxation, stages,
                       MixSeed({seed, static_cast<uint64_t>(stages),
                                static_cast<uint64_t>(start)}));
      Descend(table_, StepsOf(table_), relaxation, logits);
      std::vector<WalkStage> placed = relaxation.Round(logits);
      SettleCuts(table_, kSettleSteps, placed, relaxation, logits);
      std::vector<WalkStage> settled = relaxation.Round(logits);
      // Between cheap cuts and dear ones the second descent may slip.
      if (mender_.ScoreOf(settled) < mender_.ScoreOf(placed)) {
        placed = std::move(settled);
      }
      const Score score = mender_.Mend(std::move(placed), kPasses);
      if (!(score < score_)) continue;
      score_ = score;
      placement_ = mender_.ToPlacement();
    }
  }

  bool fits() const { return score_.excess == 0; }
  const Placement& placement() const { return placement_; }

 private:
  const CostTable& table_;
  Mender mender_;
  Score score_;
  Placement placement_;
};

}  // namespace

absl::StatusOr<Placement> SoftPlacement(const PlanProblem& problem,
                                        uint64_t seed) {
  const CostTable table(problem);
  Best best(table);
  for (const int stages : StagesToTry(table)) {
    best.Try(stages, StartsOf(table), seed);
  }
  for (int rescue = 1; !best.fits() && rescue <= kRescues; ++rescue) {
    for (const int stages : StagesToTry(table)) {
      best.Try(stages, StartsOf(table),
               MixSeed({seed, static_cast<uint64_t>(rescue)}));
    }
  }
  if (!best.fits()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no rounded placement could be mended to fit, dp proves whether there "
        "is one: ",
        NothingFits(problem).message()));
  }
  return best.placement();
}

}  // namespace paceline
