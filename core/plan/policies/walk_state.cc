#include "core/plan/policies/walk_state.h"

#include <algorithm>
#include <cmath>
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

void WalkState::Reset(std::vector<WalkStage> stages) {
  draft_ = std::move(stages);
  after_.assign(draft_.size(), {});
  touched_.assign(draft_.size(), 1);
  shape_changed_ = true;
  unused_.clear();
  std::vector<bool> used(static_cast<size_t>(table_.devices()), false);
  for (const WalkStage& stage : draft_) {
    for (const int device : stage.devices) used[device] = true;
  }
  for (int device = 0; device < table_.devices(); ++device) {
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
  after_.insert(after_.begin() + stage + 1, TransferCost());
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
    if (touched_[s]) FillStage(draft_[s]);
  }
  for (int s = 0; s + 1 < stages; ++s) {
    if (touched_[s] || touched_[s + 1]) {
      after_[s] =
          table_.TransferOf(draft_[s].layers.last, draft_[s], draft_[s + 1]);
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
  cost.step_seconds = table_.weights().sum * sum +
                      table_.weights().pace * cost.bottleneck_seconds;
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
         SharesFor(table_.problem(), stage.layers, stage.devices)});
  }
  return placement;
}

}  // namespace paceline
