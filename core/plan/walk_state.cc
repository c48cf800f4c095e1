#include "core/plan/walk_state.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace paceline {
namespace {

// Sums over ranges are differences of running sums here: this close to the
// bound, StageBytes itself decides, so that both say the same.
constexpr double kNearTheBound = 1e-9;

void InsertSorted(std::vector<int>& values, int value) {
  values.insert(std::lower_bound(values.begin(), values.end(), value), value);
}

void EraseSorted(std::vector<int>& values, int value) {
  values.erase(std::lower_bound(values.begin(), values.end(), value));
}

}  // namespace

PlanTables::PlanTables(const PlanProblem& problem)
    : problem_(&problem),
      layers_(static_cast<int>(problem.layers.size())),
      devices_(static_cast<int>(problem.devices.size())) {
  FillLayers();
  FillDevices();
  FillPairs();
  if (problem.micro_batches_per_sync > 0) {
    sync_every_ = static_cast<double>(problem.micro_batches_per_sync);
  } else if (problem.micro_batches > 0) {
    sync_every_ = static_cast<double>(problem.micro_batches);
  }
}

void PlanTables::FillLayers() {
  std::vector<double> seconds(1, 0);
  parameters_.assign(1, 0);
  fixed_.assign(1, 0);
  kept_.assign(1, 0);
  outputs_.assign(1, 0);
  bytes_.assign(1, 0);
  for (const LayerCost& layer : problem_->layers) {
    seconds.push_back(seconds.back() + layer.forward_seconds +
                      (problem_->training ? layer.backward_seconds : 0));
    parameters_.push_back(parameters_.back() + layer.parameter_bytes);
    fixed_.push_back(fixed_.back() + FixedBytes(*problem_, layer));
    kept_.push_back(kept_.back() + layer.kept_bytes);
    outputs_.push_back(outputs_.back() + layer.output_bytes);
    bytes_.push_back(layer.output_bytes);
  }
  bytes_.back() = 0;
  seconds_.push_back(std::move(seconds));
}

void PlanTables::FillDevices() {
  for (const Device& device : problem_->devices) {
    if (device.layer_seconds.empty()) {
      row_.push_back(0);
      scale_.push_back(1 / device.speed);
      continue;
    }
    std::vector<double> seconds(1, 0);
    for (const double layer : device.layer_seconds) {
      seconds.push_back(seconds.back() + layer);
    }
    row_.push_back(seconds_.size());
    scale_.push_back(1);
    seconds_.push_back(std::move(seconds));
  }
}

void PlanTables::FillPairs() {
  const size_t pairs = static_cast<size_t>(devices_) * devices_;
  per_byte_.assign(pairs, 0);
  latency_.assign(pairs, 0);
  worst_per_byte_.assign(pairs, 0);
  worst_latency_.assign(pairs, 0);
  for (int a = 0; a < devices_; ++a) {
    for (int b = 0; b < devices_; ++b) {
      if (a == b) continue;
      const LinkCost& there = problem_->links[a][b];
      const LinkCost& back = problem_->links[b][a];
      const double both = problem_->training ? 1 : 0;
      const size_t pair = Pair(a, b);
      const double per_byte_there = 1 / there.bytes_per_second;
      const double per_byte_back = 1 / back.bytes_per_second;
      per_byte_[pair] = per_byte_there + both * per_byte_back;
      latency_[pair] = there.latency_seconds + both * back.latency_seconds;
      worst_per_byte_[pair] = std::max(per_byte_there, per_byte_back);
      worst_latency_[pair] =
          std::max(there.latency_seconds, back.latency_seconds);
    }
  }
}

double PlanTables::Work(LayerRange layers, int device) const {
  const Device& on = problem_->devices[device];
  const double each_way = problem_->training ? 2 : 1;
  const int boundaries = (layers.first > 0) + (layers.last < layers_);
  return SecondsBefore(layers.last, device) -
         SecondsBefore(layers.first, device) +
         each_way * (boundaries * on.frame_seconds +
                     (BytesBefore(layers.first) + BytesBefore(layers.last)) *
                         on.frame_seconds_per_byte);
}

StageAmounts PlanTables::AmountsOf(LayerRange layers) const {
  const auto [first, last] = layers;
  return {FixedBefore(last) - FixedBefore(first),
          ParametersBefore(last) - ParametersBefore(first),
          KeptBefore(last) - KeptBefore(first),
          OutputsBefore(last) - OutputsBefore(first),
          BytesBefore(first) + BytesBefore(last)};
}

void WalkState::Reset(std::vector<WalkStage> stages) {
  draft_ = std::move(stages);
  after_.assign(draft_.size(), {});
  touched_.assign(draft_.size(), 1);
  shape_changed_ = true;
  unused_.clear();
  std::vector<bool> used(static_cast<size_t>(tables_.devices()), false);
  for (const WalkStage& stage : draft_) {
    for (const int device : stage.devices) used[device] = true;
  }
  for (int device = 0; device < tables_.devices(); ++device) {
    if (!used[device]) unused_.push_back(device);
  }
  unused_changed_ = true;
}

void WalkState::Touch(int stage) { touched_[stage] = 1; }

void WalkState::Release(int device) {
  InsertSorted(unused_, device);
  unused_changed_ = true;
}

void WalkState::Take(int device) {
  EraseSorted(unused_, device);
  unused_changed_ = true;
}

void WalkState::MoveCut(int stage, int first_layer) {
  draft_[stage - 1].layers.last = first_layer;
  draft_[stage].layers.first = first_layer;
  Touch(stage - 1);
  Touch(stage);
}

void WalkState::AddDevice(int stage, int device) {
  Take(device);
  InsertSorted(draft_[stage].devices, device);
  Touch(stage);
}

void WalkState::RemoveDevice(int stage, int device) {
  EraseSorted(draft_[stage].devices, device);
  Release(device);
  Touch(stage);
}

void WalkState::Split(int stage, int first_layer, std::vector<int> devices) {
  for (const int device : devices) Take(device);
  WalkStage tail;
  tail.layers = {first_layer, draft_[stage].layers.last};
  tail.devices = std::move(devices);
  draft_[stage].layers.last = first_layer;
  Touch(stage);
  draft_.insert(draft_.begin() + stage + 1, std::move(tail));
  after_.insert(after_.begin() + stage + 1, Boundary());
  touched_.insert(touched_.begin() + stage + 1, 1);
  shape_changed_ = true;
}

void WalkState::Dissolve(int stage) {
  for (const int device : draft_[stage].devices) Release(device);
  if (stage > 0) {
    draft_[stage - 1].layers.last = draft_[stage].layers.last;
    Touch(stage - 1);
  } else {
    draft_[1].layers.first = draft_[0].layers.first;
    Touch(1);
  }
  draft_.erase(draft_.begin() + stage);
  after_.erase(after_.begin() + stage);
  touched_.erase(touched_.begin() + stage);
  shape_changed_ = true;
}

void WalkState::SwapDevices(int a, int b) {
  std::swap(draft_[a].devices, draft_[b].devices);
  Touch(a);
  Touch(b);
}

double WalkState::SyncSeconds(const WalkStage& stage) const {
  const double replicas = static_cast<double>(stage.devices.size());
  if (!tables_.problem().training || replicas < 2) return 0;
  double per_byte = 0;
  double latency = 0;
  for (size_t i = 0; i < stage.devices.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const int a = stage.devices[i];
      const int b = stage.devices[j];
      per_byte = std::max(per_byte, tables_.WorstSecondsPerByte(a, b));
      latency = std::max(latency, tables_.WorstLatency(a, b));
    }
  }
  return 2 * (replicas - 1) *
         (stage.amounts.parameters * per_byte / replicas + latency) /
         tables_.SyncEvery();
}

void WalkState::FillStage(WalkStage& stage) const {
  const PlanProblem& problem = tables_.problem();
  stage.amounts = tables_.AmountsOf(stage.layers);
  stage.least_memory_bytes = HUGE_VAL;
  stage.shares.resize(stage.devices.size());
  double rate = 0;
  double most = 0;
  double least = HUGE_VAL;
  for (size_t i = 0; i < stage.devices.size(); ++i) {
    const int device = stage.devices[i];
    const double work = tables_.Work(stage.layers, device);
    most = std::max(most, work);
    least = std::min(least, work);
    rate += 1 / work;
    stage.shares[i] = 1 / work;
    const double memory = problem.devices[device].memory_bytes;
    if (memory > 0) {
      stage.least_memory_bytes = std::min(stage.least_memory_bytes, memory);
    }
  }
  const double replicas = static_cast<double>(stage.devices.size());
  double compute = most / replicas;
  // As SharesFor: who has nothing to do leaves equal shares.
  if (problem.uneven_shares && least > 0) {
    compute = 1 / rate;
    for (double& share : stage.shares) share /= rate;
  } else {
    for (double& share : stage.shares) share = 1 / replicas;
  }
  const double sync = SyncSeconds(stage);
  stage.seconds = problem.overlap ? std::max(compute, sync) : compute + sync;
}

WalkState::Boundary WalkState::Between(const WalkStage& left,
                                       const WalkStage& right) {
  const double bytes = tables_.BytesBefore(right.layers.first);
  Boundary boundary;
  port_.assign(right.devices.size(), 0);
  for (size_t u = 0; u < left.devices.size(); ++u) {
    double left_port = 0;
    for (size_t v = 0; v < right.devices.size(); ++v) {
      const int from = left.devices[u];
      const int to = right.devices[v];
      const double share = left.shares[u] * right.shares[v];
      const double seconds = share * bytes * tables_.SecondsPerByte(from, to);
      left_port += seconds;
      port_[v] += seconds;
      boundary.delay += seconds + share * tables_.Latency(from, to);
    }
    boundary.occupied = std::max(boundary.occupied, left_port);
  }
  for (const double busy : port_) {
    boundary.occupied = std::max(boundary.occupied, busy);
  }
  return boundary;
}

double WalkState::Excess(const WalkStage& stage,
                         const StagePlace& place) const {
  const double there = stage.least_memory_bytes;
  if (there == HUGE_VAL) return 0;
  const PlanProblem& problem = tables_.problem();
  double need = BytesOf(problem, stage.amounts, InFlightOf(problem, place));
  if (std::abs(need - there) <= kNearTheBound * need) {
    need = StageBytes(problem, stage.layers, place);
  }
  return need > there ? (need - there) / there : 0;
}

WalkCost WalkState::Evaluate() {
  const PlanProblem& problem = tables_.problem();
  const int stages = size();
  for (int s = 0; s < stages; ++s) {
    if (touched_[s]) FillStage(draft_[s]);
  }
  for (int s = 0; s + 1 < stages; ++s) {
    if (touched_[s] || touched_[s + 1]) {
      after_[s] = Between(draft_[s], draft_[s + 1]);
    }
  }
  WalkCost cost;
  double sum = 0;
  double busy_sum = 0;
  StagePlace place;
  for (const WalkStage& stage : draft_) {
    place.earlier_devices += static_cast<int>(stage.devices.size());
  }
  for (int s = stages - 1; s >= 0; --s) {
    const bool last = s + 1 == stages;
    const double after = last ? 0 : after_[s].delay;
    double busy = draft_[s].seconds;
    sum += busy + after;
    if (!problem.overlap) busy += after + (s > 0 ? after_[s - 1].delay : 0);
    busy_sum += busy;
    if (problem.overlap && !last) busy = std::max(busy, after_[s].occupied);
    if (busy > cost.bottleneck_seconds) {
      cost.bottleneck_seconds = busy;
      cost.busiest_stage = s;
    }
    place.replicas = static_cast<int>(draft_[s].devices.size());
    place.earlier_devices -= place.replicas;
    cost.excess += Excess(draft_[s], place);
    place.later_devices += place.replicas;
  }
  cost.mean_busy_seconds = busy_sum / stages;
  cost.step_seconds =
      problem.micro_batches == 0
          ? cost.bottleneck_seconds
          : sum + static_cast<double>(problem.micro_batches - 1) *
                      cost.bottleneck_seconds;
  return cost;
}

void WalkState::Keep() {
  if (shape_changed_) {
    kept_ = draft_;
    kept_after_ = after_;
  } else {
    for (int s = 0; s < size(); ++s) {
      if (!touched_[s]) continue;
      kept_[s] = draft_[s];
      kept_after_[s] = after_[s];
      if (s > 0) kept_after_[s - 1] = after_[s - 1];
    }
  }
  if (unused_changed_) kept_unused_ = unused_;
  touched_.assign(draft_.size(), 0);
  shape_changed_ = unused_changed_ = false;
}

void WalkState::Undo() {
  if (shape_changed_) {
    draft_ = kept_;
    after_ = kept_after_;
  } else {
    for (int s = 0; s < size(); ++s) {
      if (!touched_[s]) continue;
      draft_[s] = kept_[s];
      after_[s] = kept_after_[s];
      if (s > 0) after_[s - 1] = kept_after_[s - 1];
    }
  }
  if (unused_changed_) unused_ = kept_unused_;
  touched_.assign(draft_.size(), 0);
  shape_changed_ = unused_changed_ = false;
}

Placement WalkState::ToPlacement() const {
  Placement placement;
  for (const WalkStage& stage : draft_) {
    placement.push_back(
        {stage.layers, stage.devices,
         SharesFor(tables_.problem(), stage.layers, stage.devices)});
  }
  return placement;
}

}  // namespace paceline
