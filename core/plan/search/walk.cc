#include "core/plan/search/walk.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/plan/search/policies.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

// Sums over ranges are differences of running sums here.  This close to the
// bound StageBytes() itself decides, so that the walk and CheckMemory agree.
constexpr double kNearTheBound = 1e-9;

void InsertSorted(std::vector<int>& values, int value) {
  values.insert(std::lower_bound(values.begin(), values.end(), value), value);
}

void EraseSorted(std::vector<int>& values, int value) {
  values.erase(std::lower_bound(values.begin(), values.end(), value));
}

// --- steps ------------------------------------------------------------------

struct Step {
  const CostTable& table;
  const WalkCost& now;  // of the draft before the step
  SplitMix64& random;
  WalkState& state;

  int Below(int bound) const {
    return static_cast<int>(random.Below(static_cast<uint64_t>(bound)));
  }
  bool Coin() const { return Below(2) == 0; }
  int AnyStage() const { return Below(state.size()); }
  int LikelyStage() const { return Coin() ? now.busiest_stage : AnyStage(); }
  int AnyOf(const std::vector<int>& values) const {
    return values[Below(static_cast<int>(values.size()))];
  }
  int AnyDevice(int stage) const { return AnyOf(state.stage(stage).devices); }
  int Replicas(int stage) const {
    return static_cast<int>(state.stage(stage).devices.size());
  }
  bool MayReplicate() const { return table.problem().replicas; }
  bool FreeCount() const { return table.problem().stages == 0; }
};

double Slowest(const CostTable& table, LayerRange layers,
               const std::vector<int>& devices) {
  const bool uneven = table.problem().uneven_shares;
  double rate = 0;
  double most = 0;
  for (const int device : devices) {
    const double work = table.Work(layers, device);
    rate += 1 / work;
    most = std::max(most, work);
  }
  return uneven ? 1 / rate : most / static_cast<double>(devices.size());
}

// Returns the first layer of the right half when `layers` is cut so that both
// halves take about as long, the left one on `left`, the right one on `right`.
// `layers` holds at least two.  O(devices x log layers).
int BalancedCut(const CostTable& table, LayerRange layers,
                const std::vector<int>& left, const std::vector<int>& right) {
  int least = layers.first + 1;
  int most = layers.last - 1;
  while (least < most) {
    const int middle = least + (most - least) / 2;
    if (Slowest(table, {layers.first, middle}, left) <
        Slowest(table, {middle, layers.last}, right)) {
      least = middle + 1;
    } else {
      most = middle;
    }
  }
  return least;
}

bool Balance(const Step& step, int stage) {
  const WalkStage& left = step.state.stage(stage - 1);
  const WalkStage& right = step.state.stage(stage);
  int cut = BalancedCut(step.table, {left.layers.first, right.layers.last},
                        left.devices, right.devices);
  if (step.Coin()) --cut;
  cut = std::max(cut, left.layers.first + 1);
  if (cut == right.layers.first) return false;
  step.state.MoveCut(stage, cut);
  return true;
}

bool ShiftCut(const Step& step) {
  if (step.state.size() < 2) return false;
  const int near = step.LikelyStage() + step.Below(2);
  const int stage = std::clamp(near, 1, step.state.size() - 1);
  const int least = step.state.stage(stage - 1).layers.first + 1;
  const int most = step.state.stage(stage).layers.last - 1;
  const int now = step.state.stage(stage).layers.first;
  int cut = now + (step.Coin() ? 1 : -1);
  const int kind = step.Below(8);
  if (kind == 0) cut = least + step.Below(most - least + 1);
  if (kind == 1) return Balance(step, stage);
  if (kind == 2) cut = now + (cut - now) * (2 + step.Below(6));
  if (cut < least || cut > most || cut == now) return false;
  step.state.MoveCut(stage, cut);
  return true;
}

// Exchanges one device between two stages.
bool Exchange(const Step& step) {
  const int a = step.LikelyStage();
  const int b = step.AnyStage();
  if (a == b) return false;
  const int from_a = step.AnyDevice(a);
  const int from_b = step.AnyDevice(b);
  step.state.RemoveDevice(a, from_a);
  step.state.RemoveDevice(b, from_b);
  step.state.AddDevice(a, from_b);
  step.state.AddDevice(b, from_a);
  return true;
}

bool SwapStages(const Step& step) {
  const int a = step.LikelyStage();
  const int b = step.AnyStage();
  if (a == b) return false;
  step.state.SwapDevices(a, b);
  return true;
}

// Reverses the devices of a run of stages, as 2-opt does.
bool Reverse(const Step& step) {
  int a = step.AnyStage();
  int b = step.AnyStage();
  if (a > b) std::swap(a, b);
  if (b - a < 2) return false;
  while (a < b) step.state.SwapDevices(a++, b--);
  return true;
}

bool Replace(const Step& step) {
  if (step.state.unused().empty()) return false;
  const int stage = step.LikelyStage();
  const int fresh = step.AnyOf(step.state.unused());
  step.state.RemoveDevice(stage, step.AnyDevice(stage));
  step.state.AddDevice(stage, fresh);
  return true;
}

bool AddReplica(const Step& step) {
  if (!step.MayReplicate() || step.state.unused().empty()) return false;
  step.state.AddDevice(step.LikelyStage(), step.AnyOf(step.state.unused()));
  return true;
}

bool DropReplica(const Step& step) {
  const int stage = step.LikelyStage();
  if (step.Replicas(stage) < 2) return false;
  step.state.RemoveDevice(stage, step.AnyDevice(stage));
  return true;
}

bool MoveReplica(const Step& step) {
  const int to = step.LikelyStage();
  const int from = step.AnyStage();
  if (!step.MayReplicate() || from == to || step.Replicas(from) < 2) {
    return false;
  }
  const int device = step.AnyDevice(from);
  step.state.RemoveDevice(from, device);
  step.state.AddDevice(to, device);
  return true;
}

// Cuts `stage` in two; `devices`, which are unused, get one part.
void SplitFor(const Step& step, int stage, std::vector<int> devices) {
  const LayerRange layers = step.state.stage(stage).layers;
  const bool head = step.Coin();
  int cut = layers.first + 1 + step.Below(layers.last - layers.first - 1);
  if (step.Coin()) {
    const std::vector<int>& own = step.state.stage(stage).devices;
    cut = head ? BalancedCut(step.table, layers, devices, own)
               : BalancedCut(step.table, layers, own, devices);
  }
  step.state.Split(stage, cut, std::move(devices));
  if (head) step.state.SwapDevices(stage, stage + 1);
}

bool Divisible(const Step& step, int stage) {
  const LayerRange layers = step.state.stage(stage).layers;
  return layers.last - layers.first >= 2;
}

bool SplitStage(const Step& step) {
  const int stage = step.LikelyStage();
  if (!step.FreeCount() || !Divisible(step, stage)) return false;
  std::vector<int> devices;
  if (step.Replicas(stage) >= 2 && step.Coin()) {
    for (const int device : step.state.stage(stage).devices) {
      if (step.Coin()) devices.push_back(device);
    }
    if (static_cast<int>(devices.size()) == step.Replicas(stage)) {
      devices.pop_back();
    }
    if (devices.empty()) return false;
    for (const int device : devices) step.state.RemoveDevice(stage, device);
  } else if (!step.state.unused().empty()) {
    devices.push_back(step.AnyOf(step.state.unused()));
  } else {
    return false;
  }
  SplitFor(step, stage, std::move(devices));
  return true;
}

// Gives the layers of `stage` to a neighbour; returns the neighbour's new
// number.
int MergeAway(const Step& step, int stage) {
  if (stage + 1 < step.state.size() && step.Coin()) {
    step.state.SwapDevices(stage, stage + 1);
    step.state.Dissolve(stage + 1);
    return stage;
  }
  step.state.Dissolve(stage);
  return std::max(stage - 1, 0);
}

bool MergeStages(const Step& step) {
  if (!step.FreeCount() || step.state.size() < 2) return false;
  const int stage = step.LikelyStage();
  const std::vector<int> devices = step.state.stage(stage).devices;
  const int merged = MergeAway(step, stage);
  if (step.MayReplicate() && step.Coin()) {
    for (const int device : devices) step.state.AddDevice(merged, device);
  }
  return true;
}

// Removes a stage and cuts another in two for its devices.
bool Relocate(const Step& step) {
  if (step.state.size() < 2) return false;
  const int stage = step.LikelyStage();
  std::vector<int> devices = step.state.stage(stage).devices;
  MergeAway(step, stage);
  const int to = step.AnyStage();
  if (!Divisible(step, to)) return false;
  SplitFor(step, to, std::move(devices));
  return true;
}

// Moves the devices of a stage to another place in the chain.
bool MoveDevices(const Step& step) {
  int from = step.LikelyStage();
  const int to = step.AnyStage();
  if (from == to) return false;
  for (; from < to; ++from) step.state.SwapDevices(from, from + 1);
  for (; from > to; --from) step.state.SwapDevices(from, from - 1);
  return true;
}

// Returns the first layer of `stage` when it ends where it does now and takes
// as many layers as it can at a pace; its last layer + 1: it can take none.
int FirstAtPace(const Step& step, int stage, double pace_seconds,
                int later_devices) {
  constexpr int kMostTried = 48;
  const CostTable& table = step.table;
  const WalkStage& here = step.state.stage(stage);
  const int last = here.layers.last;
  const double memory_bytes = table.MemoryOf(here.devices);
  const SyncCost sync = table.SyncOf(here.devices);
  std::vector<double> shares;
  const auto holds = [&](int first) {
    return table.StageSeconds({first, last}, here.devices, sync, shares) <=
               pace_seconds &&
           (memory_bytes == HUGE_VAL ||
            table.StageBytes({first, last}, step.Replicas(stage),
                             later_devices) <= memory_bytes);
  };
  if (step.FreeCount() && holds(0)) return 0;
  if (!holds(last - 1)) return last;
  int low = stage;  // a layer is left for each stage before it
  int high = last - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (holds(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  // Later cuts may be crossed by fewer bytes.
  const TransferRate before = table.RateOf(step.state.stage(stage - 1), here);
  for (int first = low; first < std::min(last, low + kMostTried); ++first) {
    if (before.Of(table.BytesBefore(first)).occupied <= pace_seconds) {
      return first;
    }
  }
  return last;
}

// Returns whether the first stage takes longer than a pace, and an unused
// device may take a part of it.
bool NeedsAnother(const Step& step, double pace_seconds) {
  const WalkStage& stage = step.state.stage(0);
  std::vector<double> shares;
  return step.FreeCount() && !step.state.unused().empty() &&
         stage.layers.last >= 2 &&
         step.table.StageSeconds({0, stage.layers.last}, stage.devices,
                                 step.table.SyncOf(stage.devices),
                                 shares) > pace_seconds;
}

// Lays all cuts anew.  Each stage, from the last to the first, takes as many
// layers as it can at a pace near the present one, or none.  The first stage
// takes the rest, and shares it with unused devices where it takes too long.
void Repack(const Step& step) {
  constexpr double kPaces[] = {1.0, 0.999, 0.99, 1.01, 0.95, 1.05, 0.8, 1.3};
  constexpr int kMostFresh = 8;
  WalkState& state = step.state;
  state.Evaluate();  // fills in shares
  const double pace_seconds =
      step.now.bottleneck_seconds *
      kPaces[step.Below(static_cast<int>(std::size(kPaces)))];
  int later_devices = 0;
  int fresh = 0;
  for (int s = state.size() - 1; s > 0 || fresh < kMostFresh; --s) {
    const int last = state.stage(s).layers.last;
    if (s == 0) {
      if (!NeedsAnother(step, pace_seconds)) return;
      state.Split(0, last - 1, {step.AnyOf(state.unused())});
      ++fresh;
      s = 1;
    }
    const int first = FirstAtPace(step, s, pace_seconds, later_devices);
    if (first == last && step.FreeCount()) {
      state.Dissolve(s);
      continue;
    }
    later_devices += step.Replicas(s);
    if (first == 0) {
      for (; s > 0; --s) state.Dissolve(0);
      return;
    }
    state.MoveCut(s, std::min(first, last - 1));
  }
}

}  // namespace

void WalkState::Reset(std::vector<WalkStage> stages) {
  draft_.placed = std::move(stages);
  draft_.after.assign(draft_.placed.size(), {});
  touched_.assign(draft_.placed.size(), 1);
  shape_changed_ = true;
  draft_.unused.clear();
  std::vector<bool> used(static_cast<size_t>(table_.devices()), false);
  for (const WalkStage& stage : draft_.placed) {
    for (const int device : stage.devices) used[device] = true;
  }
  for (int device = 0; device < table_.devices(); ++device) {
    if (!used[device]) draft_.unused.push_back(device);
  }
  unused_changed_ = true;
}

void WalkState::Touch(int stage) { touched_[stage] = 1; }

void WalkState::Release(int device) {
  InsertSorted(draft_.unused, device);
  unused_changed_ = true;
}

void WalkState::Take(int device) {
  EraseSorted(draft_.unused, device);
  unused_changed_ = true;
}

void WalkState::MoveCut(int stage, int first_layer) {
  draft_.placed[stage - 1].layers.last = first_layer;
  draft_.placed[stage].layers.first = first_layer;
  Touch(stage - 1);
  Touch(stage);
}

void WalkState::AddDevice(int stage, int device) {
  Take(device);
  InsertSorted(draft_.placed[stage].devices, device);
  Touch(stage);
}

void WalkState::RemoveDevice(int stage, int device) {
  EraseSorted(draft_.placed[stage].devices, device);
  Release(device);
  Touch(stage);
}

void WalkState::Split(int stage, int first_layer, std::vector<int> devices) {
  for (const int device : devices) Take(device);
  WalkStage tail;
  tail.layers = {first_layer, draft_.placed[stage].layers.last};
  tail.shares.assign(devices.size(), 1 / static_cast<double>(devices.size()));
  tail.devices = std::move(devices);
  draft_.placed[stage].layers.last = first_layer;
  Touch(stage);
  draft_.placed.insert(draft_.placed.begin() + stage + 1, std::move(tail));
  draft_.after.insert(draft_.after.begin() + stage + 1, TransferCost());
  touched_.insert(touched_.begin() + stage + 1, 1);
  shape_changed_ = true;
}

void WalkState::Dissolve(int stage) {
  for (const int device : draft_.placed[stage].devices) Release(device);
  if (stage > 0) {
    draft_.placed[stage - 1].layers.last = draft_.placed[stage].layers.last;
    Touch(stage - 1);
  } else {
    draft_.placed[1].layers.first = draft_.placed[0].layers.first;
    Touch(1);
  }
  draft_.placed.erase(draft_.placed.begin() + stage);
  draft_.after.erase(draft_.after.begin() + stage);
  touched_.erase(touched_.begin() + stage);
  shape_changed_ = true;
}

void WalkState::SwapDevices(int a, int b) {
  std::swap(draft_.placed[a].devices, draft_.placed[b].devices);
  Touch(a);
  Touch(b);
}

void WalkState::FillStage(WalkStage& stage) const {
  stage.amounts = table_.AmountsOf(stage.layers);
  stage.least_memory_bytes = table_.MemoryOf(stage.devices);
  stage.seconds = table_.StageSeconds(
      stage.layers, stage.devices, table_.SyncOf(stage.devices), stage.shares);
}

double WalkState::Excess(const WalkStage& stage,
                         const StagePlace& place) const {
  const double there = stage.least_memory_bytes;
  if (there == HUGE_VAL) return 0;
  const PlanProblem& problem = table_.problem();
  double need = BytesOf(problem, stage.amounts, InFlightOf(problem, place));
  if (std::abs(need - there) <= kNearTheBound * need) {
    need = StageBytes(problem, stage.layers, place);
  }
  return need > there ? (need - there) / there : 0;
}

WalkCost WalkState::Evaluate() {
  const PlanProblem& problem = table_.problem();
  const int stages = size();
  for (int s = 0; s < stages; ++s) {
    if (touched_[s]) FillStage(draft_.placed[s]);
  }
  for (int s = 0; s + 1 < stages; ++s) {
    if (touched_[s] || touched_[s + 1]) {
      draft_.after[s] = table_.TransferOf(
          draft_.placed[s].layers.last, draft_.placed[s], draft_.placed[s + 1]);
    }
  }
  WalkCost cost;
  double sum = 0;
  double busy_sum = 0;
  StagePlace place;
  place.earlier_devices =
      table_.devices() - static_cast<int>(draft_.unused.size());
  for (int s = stages - 1; s >= 0; --s) {
    const bool last = s + 1 == stages;
    const double after = last ? 0 : draft_.after[s].delay;
    double busy = draft_.placed[s].seconds;
    sum += busy + after;
    if (!problem.overlap) {
      busy += after + (s > 0 ? draft_.after[s - 1].delay : 0);
    }
    busy_sum += busy;
    if (problem.overlap && !last) {
      busy = std::max(busy, draft_.after[s].occupied);
    }
    if (busy > cost.bottleneck_seconds) {
      cost.bottleneck_seconds = busy;
      cost.busiest_stage = s;
    }
    place.replicas = static_cast<int>(draft_.placed[s].devices.size());
    place.earlier_devices -= place.replicas;
    cost.excess += Excess(draft_.placed[s], place);
    place.later_devices += place.replicas;
  }
  cost.mean_busy_seconds = busy_sum / stages;
  cost.step_seconds = table_.weights().sum * sum +
                      table_.weights().pace * cost.bottleneck_seconds;
  return cost;
}

void WalkState::Keep() { Settle(draft_, kept_); }

void WalkState::Undo() { Settle(kept_, draft_); }

void WalkState::Settle(const Stages& from, Stages& to) {
  if (shape_changed_) {
    to.placed = from.placed;
    to.after = from.after;
  } else {
    for (int s = 0; s < size(); ++s) {
      if (!touched_[s]) continue;
      to.placed[s] = from.placed[s];
      to.after[s] = from.after[s];
      if (s > 0) to.after[s - 1] = from.after[s - 1];
    }
  }
  if (unused_changed_) to.unused = from.unused;
  touched_.assign(draft_.placed.size(), 0);
  shape_changed_ = unused_changed_ = false;
}

Placement WalkState::ToPlacement() const {
  Placement placement;
  for (const WalkStage& stage : draft_.placed) {
    placement.push_back({stage.layers, stage.devices,
                         SharesFor(table_, stage.layers, stage.devices)});
  }
  return placement;
}

std::vector<WalkStage> ProportionalStages(const CostTable& table,
                                          const std::vector<int>& devices) {
  const int layers = table.layers();
  const int stages = static_cast<int>(devices.size());
  double total = 0;
  for (const int device : devices) {
    total += 1 / table.ComputeOnly(0, layers, device);
  }
  std::vector<WalkStage> placed;
  double before = 0;
  int first = 0;
  for (int s = 0; s < stages; ++s) {
    const int device = devices[s];
    const double whole = table.ComputeOnly(0, layers, device);
    before += 1 / whole;
    int last = first + 1;
    const int most = layers - (stages - s - 1);
    // A chain that takes no time may be cut anywhere.
    while (last < most && !(table.ComputeOnly(0, last + 1, device) >
                            whole * (before / total))) {
      ++last;
    }
    if (s + 1 == stages) last = layers;
    WalkStage stage;
    stage.layers = {first, last};
    stage.devices = {device};
    placed.push_back(std::move(stage));
    first = last;
  }
  return placed;
}

bool ProposeMove(const CostTable& table, const WalkCost& now,
                 SplitMix64& random, WalkState& state) {
  constexpr int kRepackOneIn = 10;
  using Kind = bool (*)(const Step&);
  // Kinds repeat by their weight.
  static constexpr Kind kKinds[] = {
      ShiftCut,    ShiftCut,   ShiftCut,    ShiftCut,    ShiftCut, Exchange,
      Exchange,    SwapStages, Replace,     AddReplica,  Replace,  AddReplica,
      DropReplica, SplitStage, SplitStage,  MergeStages, Relocate, MoveReplica,
      MoveReplica, Reverse,    MoveDevices, MoveDevices,
  };
  const Step step{table, now, random, state};
  const Kind kind = kKinds[step.Below(static_cast<int>(std::size(kKinds)))];
  if (!kind(step)) return false;
  // Other devices in an order need other cuts.
  if (kind != ShiftCut && step.Below(kRepackOneIn) == 0) Repack(step);
  return true;
}

// --- the walk ---------------------------------------------------------------

namespace {

// Approximates exp(-x) for x >= 0 by (1 - x / 64)^64: products round alike on
// all machines.
double Acceptance(double x) {
  double power = std::max(1 - x / 64, 0.0);
  for (int i = 0; i < 6; ++i) power *= power;
  return power;
}

}  // namespace

void Walk::Run(std::vector<WalkStage> from, int64_t steps, double temperature) {
  constexpr int kLevels = 48;
  constexpr double kCooling = 0.9;
  state_.Reset(std::move(from));
  Take(state_.Evaluate());
  for (int level = 0; level < kLevels; ++level) {
    for (int64_t i = 0; i < steps / kLevels; ++i) Try(temperature);
    temperature *= kCooling;
  }
}

void Walk::CountOnlyExcess() { excess_weight_ = 1000; }

absl::StatusOr<Placement> Walk::BestPlacement() {
  if (!found()) {
    return ResourceExhausted(
        "the walk met no placement that fits, optimal proves whether there is "
        "one: ",
        NothingFits(table_.problem()).message());
  }
  state_.Reset(best_);
  return state_.ToPlacement();
}

double Walk::Energy(const WalkCost& cost) const {
  // An endless stream's cost ignores stages below the bottleneck.  The mean
  // gives the walk a direction there.
  constexpr double kMeanWeight = 0.02;
  const bool endless = table_.problem().micro_batches == 0;
  return (cost.step_seconds +
          (endless ? kMeanWeight * cost.mean_busy_seconds : 0)) *
         (1 + excess_weight_ * cost.excess);
}

void Walk::Take(const WalkCost& cost) {
  constexpr double kRounding = 1e-12;
  state_.Keep();
  energy_ = Energy(cost);
  now_ = cost;
  if (cost.excess > 0 || cost.step_seconds > best_seconds_ * (1 + kRounding)) {
    return;
  }
  // Equal placements: fewer devices win, then lower numbers first.
  std::vector<int> devices;
  for (int s = 0; s < state_.size(); ++s) {
    const std::vector<int>& more = state_.stage(s).devices;
    devices.insert(devices.end(), more.begin(), more.end());
  }
  if (cost.step_seconds >= best_seconds_ * (1 - kRounding) &&
      std::pair(devices.size(), devices) >=
          std::pair(best_devices_.size(), best_devices_)) {
    return;
  }
  best_seconds_ = std::min(best_seconds_, cost.step_seconds);
  best_devices_ = std::move(devices);
  best_.resize(static_cast<size_t>(state_.size()));
  for (int s = 0; s < state_.size(); ++s) best_[s] = state_.stage(s);
}

void Walk::Try(double temperature) {
  if (!ProposeMove(table_, now_, random_, state_)) {
    state_.Undo();
    return;
  }
  const WalkCost cost = state_.Evaluate();
  const double more = Energy(cost) - energy_;
  if (more <= 0 ||
      random_.Unit() < Acceptance(more / (temperature * energy_))) {
    Take(cost);
  } else {
    state_.Undo();
  }
}

// --- the policy mcmc, and the search of optimal ---

namespace {

// Steps of mcmc for each layer and device of a problem.
constexpr int kStepsPerSize = 1000;
// Hot walks from other starts.  On random problems of 8 layers and 5 devices,
// 16 of them miss the best placement in 1 %, and 4 of the same length in 4 %
// (measured 2026-11-21).
constexpr int kRestarts = 16;
// The first temperatures, relative to the cost.  On 64 devices and more a cold
// walk along cheap wires finds better placements than hot ones.
constexpr double kHot = 0.08;
constexpr double kCold = 0.001;

void Shuffle(std::vector<int>& values, SplitMix64& random) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random.Below(i)]);
  }
}

// Returns the devices, the quickest for the whole chain first; ties by number.
std::vector<int> QuickestFirst(const CostTable& table) {
  std::vector<int> devices(table.devices());
  std::iota(devices.begin(), devices.end(), 0);
  std::ranges::stable_sort(devices, {}, [&](int device) {
    return table.ComputeOnly(0, table.layers(), device);
  });
  return devices;
}

// Returns all devices, the quickest first.  Each next one has the cheapest wire
// from the device before it, for the mean boundary.
std::vector<int> CheapestPath(const CostTable& table) {
  double bytes = 0;
  for (int cut = 1; cut < table.layers(); ++cut) {
    bytes += table.BytesBefore(cut) / table.layers();
  }
  std::vector<int> path = QuickestFirst(table);
  for (auto at = path.begin() + 1; at < path.end(); ++at) {
    const auto nearest =
        std::ranges::min_element(at, path.end(), {}, [&](int device) {
          const WireCost& wire = table.Wire(at[-1], device);
          return bytes * wire.seconds_per_byte + wire.latency_seconds;
        });
    std::rotate(at, nearest, nearest + 1);
  }
  return path;
}

// Returns the start of restart `index`: first on all devices by speed, then on
// one, then on a random number of devices in a random order.
std::vector<WalkStage> Start(const CostTable& table, int index,
                             SplitMix64& random) {
  const int most = std::min(table.layers(), table.devices());
  std::vector<int> devices = QuickestFirst(table);
  int stages = table.problem().stages;
  if (stages == 0) {
    stages = most;
    if (index == 1) stages = 1;
    if (index > 1) {
      stages = 1 + static_cast<int>(random.Below(static_cast<uint64_t>(most)));
    }
  }
  if (index != 1) {
    devices.resize(static_cast<size_t>(std::max(stages, most)));
    Shuffle(devices, random);
  }
  devices.resize(static_cast<size_t>(stages));
  return ProportionalStages(table, devices);
}

}  // namespace

absl::StatusOr<Placement> BestOfWalks(const CostTable& table, uint64_t seed,
                                      int64_t steps) {
  SplitMix64 random(MixSeed({seed, 0x7374617274}));
  Walk walk(table, MixSeed({seed, 0x6d636d63}));
  const int64_t hot_steps = steps / 2 / kRestarts;
  const int stages = table.problem().stages;
  std::vector<int> path = CheapestPath(table);
  path.resize(stages > 0 ? stages : std::min(table.layers(), table.devices()));
  walk.Run(ProportionalStages(table, path), steps / 4, kCold);
  for (int restart = 0; restart < kRestarts; ++restart) {
    walk.Run(Start(table, restart, random), hot_steps, kHot);
  }
  if (!walk.found()) walk.CountOnlyExcess();
  for (int restart = 2; !walk.found() && restart < kRestarts; ++restart) {
    walk.Run(Start(table, restart, random), hot_steps, kHot);
  }
  if (walk.found()) walk.Run(walk.best(), steps / 4, kCold);
  return walk.BestPlacement();
}

absl::StatusOr<Placement> McmcPlacement(const PlanProblem& problem,
                                        uint64_t seed) {
  const CostTable table(problem);
  return BestOfWalks(
      table, seed, int64_t{kStepsPerSize} * (table.layers() + table.devices()));
}

}  // namespace paceline
