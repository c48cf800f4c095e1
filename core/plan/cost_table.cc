#include "core/plan/cost_table.h"

#include <bit>
#include <cmath>
#include <utility>

namespace paceline {

ObjectiveWeights WeightsOf(const PlanProblem& problem) {
  if (problem.micro_batches == 0) return {0, 1};
  return {1, static_cast<double>(problem.micro_batches - 1)};
}

CostTable::CostTable(const PlanProblem& problem)
    : problem_(problem),
      layers_(static_cast<int>(problem.layers.size())),
      devices_(static_cast<int>(problem.devices.size())),
      weights_(WeightsOf(problem)),
      segment_(SegmentLayers(problem)) {
  seconds_ = {0};
  before_.push_back({});
  for (const LayerCost& layer : problem.layers) {
    seconds_.push_back(seconds_.back() + layer.forward_seconds +
                       (problem.training ? layer.backward_seconds : 0));
    const StageAmounts& last = before_.back();
    before_.push_back({last.fixed + FixedBytes(problem, layer),
                       last.parameters + layer.parameter_bytes,
                       last.kept + layer.kept_bytes,
                       last.outputs + OutputBytes(problem, layer),
                       layer.output_bytes, DecodedBytes(layer)});
  }
  before_.back().boundary = 0;
  before_.back().frames = 0;
  PutSegments();
  for (const Device& device : problem.devices) {
    if (device.layer_seconds.empty()) {
      paces_.push_back({0, 1 / device.speed});
      continue;
    }
    paces_.push_back({static_cast<int>(seconds_.size()), 1});
    seconds_.push_back(0);
    for (const double layer : device.layer_seconds) {
      seconds_.push_back(seconds_.back() + layer);
    }
  }
  const double back_counts = problem.training ? 1 : 0;
  for (int a = 0; a < devices_; ++a) {
    for (int b = 0; b < devices_; ++b) {
      WireCost& wire = wires_.emplace_back();
      WireCost& ring = ring_wires_.emplace_back();
      if (a == b) continue;
      const LinkCost& there = problem.links[a][b];
      const LinkCost& back = problem.links[b][a];
      const double per_byte = 1 / there.bytes_per_second;
      const double per_byte_back = 1 / back.bytes_per_second;
      wire = {per_byte + back_counts * per_byte_back,
              there.latency_seconds + back_counts * back.latency_seconds};
      ring = {std::max(per_byte, per_byte_back),
              std::max(there.latency_seconds, back.latency_seconds)};
    }
  }
  if (problem.micro_batches_per_sync > 0) {
    sync_every_ = static_cast<double>(problem.micro_batches_per_sync);
  } else if (problem.micro_batches > 0) {
    sync_every_ = static_cast<double>(problem.micro_batches);
  }
}

StageAmounts CostTable::AmountsOf(LayerRange layers) const {
  const StageAmounts& first = before_[layers.first];
  const StageAmounts& last = before_[layers.last];
  StageAmounts amounts = {
      last.fixed - first.fixed,       last.parameters - first.parameters,
      last.kept - first.kept,         last.outputs - first.outputs,
      last.boundary + first.boundary, last.frames + first.frames};
  CountSegments(layers, amounts);
  return amounts;
}

void CostTable::PutSegments() {
  if (segment_ == 0) return;
  inputs_from_.assign(layers_ + 1, 0);
  for (int l = layers_ - 1; l >= 0; --l) {
    inputs_from_[l] =
        InputBytes(problem_, l) + inputs_from_[std::min(l + segment_, layers_)];
  }
  segment_bytes_ = {0};
  for (const LayerCost& layer : problem_.layers) {
    segment_bytes_.push_back(segment_bytes_.back() +
                             SegmentBytes(problem_, layer));
  }
  std::vector<double> level;
  for (int l = 0; l + segment_ <= layers_; ++l) {
    level.push_back(segment_bytes_[l + segment_] - segment_bytes_[l]);
  }
  for (size_t half = segment_; !level.empty(); half *= 2) {
    std::vector<double> next;
    for (size_t l = 0; l + half < level.size(); ++l) {
      next.push_back(std::max(level[l], level[l + half]));
    }
    largest_.push_back(std::exchange(level, std::move(next)));
  }
}

void CostTable::CountSegments(LayerRange layers, StageAmounts& amounts) const {
  if (segment_ == 0) return;
  const int whole = (layers.last - layers.first) / segment_;
  const int rest = layers.first + whole * segment_;
  amounts.once = segment_bytes_[layers.last] - segment_bytes_[rest];
  const int end = rest < layers.last ? rest + segment_ : rest;
  amounts.kept =
      inputs_from_[layers.first] - inputs_from_[std::min(end, layers_)];
  if (whole == 0) return;
  const int level = std::bit_width(static_cast<unsigned>(whole)) - 1;
  const std::vector<double>& largest = largest_[level];
  const int other = rest - (segment_ << level);
  amounts.once =
      std::max({amounts.once, largest[layers.first], largest[other]});
}

double CostTable::StageBytes(LayerRange layers, int replicas,
                             int later_devices) const {
  const int earlier = CountsEarlier(problem_) && problem_.stages > 0
                          ? std::max(0, problem_.stages - 1 - later_devices)
                          : 0;
  return BytesOf(problem_, AmountsOf(layers),
                 InFlightOf(problem_, {replicas, earlier, later_devices}));
}

double CostTable::LeastBytes(LayerRange layers) const {
  StageAmounts amounts = AmountsOf(layers);
  amounts.frames = 0;
  return BytesOf(problem_, amounts, InFlightOf(problem_, {1, 0, 0}));
}

double CostTable::MemoryOf(const std::vector<int>& devices) const {
  double least = HUGE_VAL;
  for (const int device : devices) {
    const double bytes = problem_.devices[device].memory_bytes;
    if (bytes > 0) least = std::min(least, bytes);
  }
  return least;
}

TransferRate CostTable::RateOf(const PlacedStage& left,
                               const PlacedStage& right) const {
  // the most frequent case
  if (left.devices.size() == 1 && right.devices.size() == 1) {
    const WireCost& wire = Wire(left.devices[0], right.devices[0]);
    return {wire.seconds_per_byte, wire.seconds_per_byte, wire.latency_seconds};
  }
  return RateBetween(
      left.devices.size(), right.devices.size(),
      [&](int side, size_t i) {
        return side == 0 ? left.shares[i] : right.shares[i];
      },
      [](int, size_t) { return 1; },
      [&](size_t u, size_t v) -> const WireCost& {
        return Wire(left.devices[u], right.devices[v]);
      });
}

SyncCost CostTable::SyncOf(const std::vector<int>& devices) const {
  const double replicas = static_cast<double>(devices.size());
  if (!problem_.training || replicas < 2) return {};
  WireCost slowest;
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const WireCost& wire = RingWire(devices[i], devices[j]);
      slowest = {std::max(slowest.seconds_per_byte, wire.seconds_per_byte),
                 std::max(slowest.latency_seconds, wire.latency_seconds)};
    }
  }
  const double rounds = 2 * (replicas - 1) / sync_every_;
  return {rounds / replicas * slowest.seconds_per_byte,
          rounds * slowest.latency_seconds};
}

double CostTable::WithSync(LayerRange layers, double compute_seconds,
                           const SyncCost& sync) const {
  const double seconds =
      ParameterBytes(layers) * sync.seconds_per_byte + sync.latency_seconds;
  return SyncOverlaps(problem_) ? std::max(compute_seconds, seconds)
                                : compute_seconds + seconds;
}

double CostTable::StageSeconds(LayerRange layers,
                               const std::vector<int>& devices,
                               const SyncCost& sync,
                               std::vector<double>& shares) const {
  const size_t replicas = devices.size();
  if (replicas == 1) {
    shares.assign(1, 1.0);
    return Work(layers, devices[0]);
  }
  const double equal = 1.0 / static_cast<double>(replicas);
  shares.resize(replicas);
  double most = 0;
  double least = HUGE_VAL;
  double rate = 0;
  for (size_t i = 0; i < replicas; ++i) {
    const double work = Work(layers, devices[i]);
    most = std::max(most, work);
    least = std::min(least, work);
    shares[i] = 1 / work;
    rate += shares[i];
  }
  if (!problem_.uneven_shares || !(least > 0)) {
    shares.assign(replicas, equal);
    return WithSync(layers, most * equal, sync);
  }
  for (double& share : shares) share /= rate;
  return WithSync(layers, 1 / rate, sync);
}

double CostTable::StageSeconds(const PlacedStage& stage) const {
  double compute = 0;
  for (size_t i = 0; i < stage.devices.size(); ++i) {
    compute = std::max(compute,
                       stage.shares[i] * Work(stage.layers, stage.devices[i]));
  }
  return WithSync(stage.layers, compute, SyncOf(stage.devices));
}

PlacementCost UntiedCostOf(const CostTable& table, const Placement& placement) {
  const PlanProblem& problem = table.problem();
  PlacementCost cost;
  double sum = 0;
  TransferCost before;
  for (size_t s = 0; s < placement.size(); ++s) {
    const PlacedStage& stage = placement[s];
    TransferCost after;
    if (s + 1 < placement.size()) {
      after = table.TransferOf(stage.layers.last, stage, placement[s + 1]);
      cost.transfer_seconds.push_back(after.delay);
    }
    const double seconds = table.StageSeconds(stage);
    cost.stage_seconds.push_back(seconds);
    sum += seconds + after.delay;
    cost.bottleneck_seconds =
        std::max(cost.bottleneck_seconds,
                 problem.overlap ? std::max(seconds, after.occupied)
                                 : seconds + before.delay + after.delay);
    before = after;
  }
  cost.step_seconds = table.weights().sum * sum +
                      table.weights().pace * cost.bottleneck_seconds;
  cost.memory_bytes.assign(problem.devices.size(), 0);
  StagePlace place;
  for (const PlacedStage& stage : placement) {
    place.later_devices += static_cast<int>(stage.devices.size());
  }
  for (const PlacedStage& stage : placement) {
    place.replicas = static_cast<int>(stage.devices.size());
    place.later_devices -= place.replicas;
    const double bytes = StageBytes(problem, stage.layers, place);
    for (const int device : stage.devices) cost.memory_bytes[device] = bytes;
    place.earlier_devices += place.replicas;
  }
  return cost;
}

std::vector<double> SharesFor(const CostTable& table, LayerRange layers,
                              const std::vector<int>& devices) {
  std::vector<double> shares;
  table.StageSeconds(layers, devices, SyncCost(), shares);
  return shares;
}

}  // namespace paceline
