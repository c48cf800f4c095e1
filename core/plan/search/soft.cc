#include "core/plan/search/soft.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/base/random.h"
#include "core/plan/search/policies.h"
#include "core/plan/stage_memory.h"

// The method, for each number of stages and each start:
//
//   logits ---Relaxation---> cost, and its slope by each logit (tape.h)
//     ^                               |
//     +---------- Adam <--------------+    the softness falls level by level
//     |
//   Round()     cuts and devices become hard
//   SettleCuts  the cuts alone descend again, under the hard devices
//     |
//   Walk        random downhill steps repair what does not fit and what
//               rounding lost; the best placement of all tries is the answer
namespace paceline {
namespace {

// Keeps W and sums of memberships above 0; in units of unit_ and devices.
constexpr double kTiny = 1e-9;
// In an endless stream the mean over stages counts this much beside the
// bottleneck, so that all stages have a slope.
constexpr double kMeanWeight = 0.02;
constexpr int kRingOrder = 3;  // mean of order 2^3 over the pairs of a ring

// The features of a cut: the amounts of the layers before it, the bytes over
// it, and the seconds of the layers before it by each row of the table.
constexpr double StageAmounts::*kAmounts[] = {
    &StageAmounts::fixed,   &StageAmounts::parameters, &StageAmounts::kept,
    &StageAmounts::outputs, &StageAmounts::boundary,   &StageAmounts::frames};
enum AmountFeature {
  kFixed,
  kParameters,
  kKept,
  kOutputs,
  kBytes,
  kFrames,
  kRows
};

// Returns the mean of order 8 over a stage's pairs, times `weight`, the sum of
// z_u z_v over them.
Traced MeanOfPairs(const Traced& weight, const Traced& sum) {
  if (!(weight.value > 1e-30) || !(sum.value > 1e-30)) return 0;
  return weight * RootOf(sum / weight, kRingOrder);
}

}  // namespace

Relaxation::Relaxation(const CostTable& table, int stages)
    : table_(table),
      stages_(stages),
      devices_(table.devices()),
      layers_(table.layers()) {
  FillDevices();
  FillPairs();
  micro_batches_ = static_cast<double>(table.problem().micro_batches);
  const int features = kRows + table.rows();
  mean_.resize(static_cast<size_t>(features) * (stages + 1));
  for (int feature = 0; feature < features; ++feature) {
    Mean(feature, 0) = Feature(feature, 0);
    Mean(feature, stages) = Feature(feature, layers_);
  }
  for (Numbers* matrix : {&z_, &share_, &port_left_, &port_right_}) {
    matrix->resize(At(devices_, 0));
  }
  for (Numbers* vector : {&count_, &compute_, &time_, &delay_}) {
    vector->resize(static_cast<size_t>(stages));
  }
}

size_t Relaxation::size() const {
  return static_cast<size_t>(stages_ + devices_ * (stages_ + 1));
}

void Relaxation::FillDevices() {
  const PlanProblem& problem = table_.problem();
  double rate = 0;
  for (int d = 0; d < devices_; ++d) {
    rate += 1 / table_.Work({0, table_.layers()}, d);
  }
  unit_ = 1 / rate;
  if (!(unit_ > 0)) unit_ = 1;  // a chain that takes no time
  const double each_way = problem.training ? 2 : 1;
  for (int d = 0; d < devices_; ++d) {
    const Device& device = problem.devices[d];
    scale_.push_back(table_.ScaleOf(d) / unit_);
    frame_.push_back(each_way * device.frame_seconds / unit_);
    frame_per_byte_.push_back(each_way * device.frame_seconds_per_byte / unit_);
  }
}

void Relaxation::FillPairs() {
  const size_t pairs = static_cast<size_t>(devices_) * devices_;
  for (Vector* matrix :
       {&per_byte_, &latency_, &ring_bytes8_, &ring_latency8_}) {
    matrix->assign(pairs, 0);
  }
  double most_per_byte = 0;
  double most_latency = 0;
  for (int a = 0; a < devices_; ++a) {
    for (int b = 0; b < devices_; ++b) {
      const size_t pair = static_cast<size_t>(a) * devices_ + b;
      per_byte_[pair] = table_.Wire(a, b).seconds_per_byte / unit_;
      latency_[pair] = table_.Wire(a, b).latency_seconds / unit_;
      ring_bytes8_[pair] = table_.RingWire(a, b).seconds_per_byte;
      ring_latency8_[pair] = table_.RingWire(a, b).latency_seconds;
      most_per_byte = std::max(most_per_byte, ring_bytes8_[pair]);
      most_latency = std::max(most_latency, ring_latency8_[pair]);
    }
  }
  const auto to_the_8th = [](Vector& values, double most) {
    for (double& value : values) {
      value = most > 0 ? PowerOf(value / most, kRingOrder) : 0;
    }
  };
  to_the_8th(ring_bytes8_, most_per_byte);
  to_the_8th(ring_latency8_, most_latency);
  const double each = 2 / table_.SyncEvery() / unit_;
  ring_per_byte_ = each * most_per_byte;
  ring_latency_ = each * most_latency;
}

// --- cuts -------------------------------------------------------------------

double Relaxation::Feature(int feature, int layer) const {
  if (feature < kRows) return table_.AmountsBefore(layer).*kAmounts[feature];
  return table_.SecondsOfRow(feature - kRows, layer);
}

Relaxation::Amounts Relaxation::AmountsOf(int stage) {
  return {Between(kFixed, stage),
          Between(kParameters, stage),
          Between(kKept, stage),
          Between(kOutputs, stage),
          Mean(kBytes, stage) + Mean(kBytes, stage + 1),
          Mean(kFrames, stage) + Mean(kFrames, stage + 1),
          0};
}

// Returns the first layer of each stage, as a position: [stages].
Relaxation::Numbers Relaxation::Positions(const Numbers& logits) const {
  const Numbers widths = Softmax(logits.data(), stages_, 1);
  Numbers positions = {0};
  Traced before = 0;
  for (int cut = 1; cut < stages_; ++cut) {
    before += widths[cut - 1];
    positions.push_back(cut + (layers_ - stages_) * before);
  }
  return positions;
}

void Relaxation::Soften(int cut, const Traced& position) {
  // Layers farther away weigh less than 1e-8.
  constexpr double kWidths = 6;
  const double width = soft_.cut_width;
  const double at = position.value;
  const int least = std::max(cut, static_cast<int>(at - kWidths * width - 1));
  const int most = std::min(layers_ - stages_ + cut,
                            static_cast<int>(at + kWidths * width + 2));
  const double nearest =
      std::clamp(std::floor(at + 0.5), double(least), double(most));
  const double top = (at - nearest) * (at - nearest);
  Vector weights;
  double total = 0;
  double mean = 0;
  for (int j = least; j <= most; ++j) {
    const double off = at - j;
    weights.push_back(ExpOf((top - off * off) / (2 * width * width)));
    total += weights.back();
    mean += weights.back() * j;
  }
  mean /= total;
  for (int feature = 0; feature < kRows + table_.rows(); ++feature) {
    double sum = 0;
    double slope = 0;
    for (int j = least; j <= most; ++j) {
      const double part = weights[j - least] / total * Feature(feature, j);
      sum += part;
      slope += part * (j - mean);
    }
    Mean(feature, cut) = Joined(sum, position, slope / (width * width));
  }
}

// --- devices ----------------------------------------------------------------

void Relaxation::PutMemberships(const Numbers& logits) {
  const size_t choices = static_cast<size_t>(stages_) + 1;
  std::fill(count_.begin(), count_.end(), kTiny);
  for (int d = 0; d < devices_; ++d) {
    const Numbers member =
        Softmax(&logits[stages_ + d * choices], choices, soft_.membership);
    for (int s = 0; s < stages_; ++s) {
      z_[At(d, s)] = member[s];
      count_[s] += member[s];
    }
  }
}

void Relaxation::PutShares(int stage) {
  const Amounts amounts = AmountsOf(stage);
  const int boundaries = (stage > 0) + (stage + 1 < stages_);
  const bool uneven = table_.problem().uneven_shares;
  Numbers works, members;
  Traced sum = 0;
  for (int d = 0; d < devices_; ++d) {
    const size_t at = At(d, stage);
    const Traced work = scale_[d] * Between(kRows + table_.RowOf(d), stage) +
                        frame_per_byte_[d] * amounts.boundary +
                        (frame_[d] * boundaries + kTiny);
    share_[at] = uneven ? z_[at] / work : z_[at];
    sum += share_[at];
    works.push_back(work);
    members.push_back(z_[at]);
  }
  if (!uneven) sum += kTiny;
  for (int d = 0; d < devices_; ++d) share_[At(d, stage)] /= sum;
  // With even shares the maximum is weighted by membership, so that a slow
  // device of another stage does not dominate it.
  compute_[stage] =
      uneven ? 1 / sum : NormOf(works, soft_.sharpness, members) / sum;
}

void Relaxation::PutTransfers() {
  const Numbers ahead = tape_.Multiply(per_byte_, false, share_, stages_);
  const Numbers late = tape_.Multiply(latency_, false, share_, stages_);
  // In training each transfer goes both ways: the links' table is symmetric.
  const Numbers behind = table_.problem().training
                             ? ahead
                             : tape_.Multiply(per_byte_, true, share_, stages_);
  for (int s = 1; s < stages_; ++s) {
    delay_[s] = 0;
    for (int d = 0; d < devices_; ++d) {
      const size_t left = At(d, s - 1);
      const size_t right = At(d, s);
      port_left_[right] = Mean(kBytes, s) * share_[left] * ahead[right];
      port_right_[right] = Mean(kBytes, s) * share_[right] * behind[left];
      delay_[s] += port_left_[right] + share_[left] * late[right];
    }
  }
}

Traced Relaxation::SyncOf(int stage, const Numbers& ring,
                          const Numbers& ring_late) {
  Traced weight = 0;
  Traced bytes = 0;
  Traced late = 0;
  const Traced& count = count_[stage];
  for (int d = 0; d < devices_; ++d) {
    const Traced& z = z_[At(d, stage)];
    weight += z * (count - z);
    bytes += z * ring[At(d, stage)];
    late += z * ring_late[At(d, stage)];
  }
  return ring_per_byte_ * Between(kParameters, stage) *
             MeanOfPairs(weight, bytes) / (count * count) +
         ring_latency_ * MeanOfPairs(weight, late) / count;
}

void Relaxation::PutTimes() {
  time_ = compute_;
  if (!table_.problem().training || !table_.problem().replicas) return;
  const Numbers ring = tape_.Multiply(ring_bytes8_, false, z_, stages_);
  const Numbers ring_late = tape_.Multiply(ring_latency8_, false, z_, stages_);
  for (int s = 0; s < stages_; ++s) {
    const Traced sync = SyncOf(s, ring, ring_late);
    time_[s] = SyncOverlaps(table_.problem())
                   ? NormOf({compute_[s], sync}, soft_.sharpness)
                   : compute_[s] + sync;
  }
}

Traced Relaxation::Objective() const {
  Numbers busy = time_;
  Traced sum = 0;
  for (int s = 0; s < stages_; ++s) {
    sum += time_[s] + delay_[s];
    if (table_.problem().overlap) continue;
    busy[s] += delay_[s];
    if (s + 1 < stages_) busy[s] += delay_[s + 1];
  }
  if (table_.problem().overlap) {
    busy.insert(busy.end(), port_left_.begin(), port_left_.end());
    busy.insert(busy.end(), port_right_.begin(), port_right_.end());
  }
  const Traced bottleneck = NormOf(busy, soft_.sharpness);
  return micro_batches_ == 0 ? bottleneck + kMeanWeight * sum / stages_
                             : sum + (micro_batches_ - 1) * bottleneck;
}

// --- penalties --------------------------------------------------------------

Traced Relaxation::ReplicaPenalty() const {
  Traced sum = 0;
  if (table_.problem().replicas) return sum;
  for (int s = 0; s < stages_; ++s) {
    for (int d = 0; d < devices_; ++d) {
      const Traced& z = z_[At(d, s)];
      sum += z * (count_[s] - z);
    }
  }
  return sum;
}

Traced Relaxation::MemoryPenalty() {
  const PlanProblem& problem = table_.problem();
  Traced earlier = 0;
  for (const Traced& count : count_) earlier += count;
  Traced later = 0;
  Traced sum = 0;
  for (int s = stages_ - 1; s >= 0; --s) {
    earlier = earlier - count_[s];
    const Traced replicas = count_[s] < 1 ? 1 : count_[s];
    const Traced need =
        BytesOf(problem, AmountsOf(s),
                InFlightOf<Traced>(problem, replicas, earlier, later));
    for (int d = 0; d < devices_; ++d) {
      const double there = problem.devices[d].memory_bytes;
      if (there == 0 || need.value <= there) continue;
      const Traced excess = need / there - 1;
      sum += z_[At(d, s)] * (excess + excess * excess);
    }
    later += count_[s];
  }
  return sum;
}

double Relaxation::Loss(const std::vector<double>& logits,
                        const Softness& softness,
                        std::vector<double>& gradient) {
  soft_ = softness;
  tape_.Clear();
  Numbers inputs;
  for (const double logit : logits) inputs.push_back(tape_.Input(logit));
  const Numbers positions = Positions(inputs);
  for (int cut = 1; cut < stages_; ++cut) Soften(cut, positions[cut]);
  PutMemberships(inputs);
  for (int s = 0; s < stages_; ++s) PutShares(s);
  PutTransfers();
  PutTimes();
  const Traced objective = Objective();
  const Traced loss =
      Joined(std::log(objective.value), objective, 1 / objective.value) +
      soft_.penalty * (ReplicaPenalty() + MemoryPenalty());
  gradient.resize(size());
  tape_.PutSlopes(loss, gradient);
  return loss.value;
}

// --- rounding ---------------------------------------------------------------

std::vector<WalkStage> Relaxation::Round(const std::vector<double>& logits) {
  const Numbers positions = Positions({logits.begin(), logits.end()});
  std::vector<int> cuts(static_cast<size_t>(stages_) + 1, 0);
  for (int cut = 1; cut < stages_; ++cut) {
    // Positions are at least 1 apart; their sums may round a little closer.
    const int near = static_cast<int>(std::floor(positions[cut].value + 0.5));
    cuts[cut] = std::clamp(near, cuts[cut - 1] + 1, layers_ - stages_ + cut);
  }
  cuts[stages_] = layers_;
  std::vector<WalkStage> placed(static_cast<size_t>(stages_));
  for (int s = 0; s < stages_; ++s) placed[s].layers = {cuts[s], cuts[s + 1]};

  const size_t choices = static_cast<size_t>(stages_) + 1;
  const double* const member = logits.data() + stages_;
  // How much less a device prefers a stage than its best choice.
  struct Leaning {
    double less;
    int device;
    int stage;
  };
  std::vector<Leaning> leanings;
  for (int d = 0; d < devices_; ++d) {
    const double* const own = member + static_cast<size_t>(d) * choices;
    const double best = *std::max_element(own, own + choices);
    for (int s = 0; s < stages_; ++s) leanings.push_back({best - own[s], d, s});
  }
  std::ranges::stable_sort(leanings, {}, &Leaning::less);
  // First give every stage one device, those first that lose least; then every
  // other device goes to the stage it prefers.
  std::vector<bool> used(static_cast<size_t>(devices_), false);
  for (const Leaning& leaning : leanings) {
    if (used[leaning.device] || !placed[leaning.stage].devices.empty()) {
      continue;
    }
    used[leaning.device] = true;
    placed[leaning.stage].devices = {leaning.device};
  }
  for (const Leaning& leaning : leanings) {
    if (!table_.problem().replicas || leaning.less > 0) break;
    if (used[leaning.device]) continue;
    used[leaning.device] = true;
    std::vector<int>& devices = placed[leaning.stage].devices;
    devices.insert(
        std::lower_bound(devices.begin(), devices.end(), leaning.device),
        leaning.device);
  }
  return placed;
}

// --- the descent ---

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

namespace {

// Sets the memberships to those of `placed`, hard, then lets the cuts alone
// descend.  The old cuts suited the soft memberships, which rounding has
// changed.
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
