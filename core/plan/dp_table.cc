#include "core/plan/dp_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace paceline {
namespace {

std::vector<double> PrefixSums(const std::vector<LayerCost>& layers,
                               double LayerCost::*amount) {
  std::vector<double> sums = {0};
  for (const LayerCost& layer : layers)
    sums.push_back(sums.back() + layer.*amount);
  return sums;
}

std::vector<std::vector<WireCost>> WiresOf(const PlanProblem& problem) {
  const size_t devices = problem.devices.size();
  std::vector<std::vector<WireCost>> wires(devices,
                                           std::vector<WireCost>(devices));
  for (size_t u = 0; u < devices; ++u) {
    for (size_t v = 0; v < devices; ++v) {
      if (u == v) continue;
      const LinkCost& there = problem.links[u][v];
      const LinkCost& back = problem.links[v][u];
      WireCost& wire = wires[u][v];
      wire = {1 / there.bytes_per_second, there.latency_seconds};
      if (!problem.training) continue;
      wire.seconds_per_byte += 1 / back.bytes_per_second;
      wire.latency_seconds += back.latency_seconds;
    }
  }
  return wires;
}

}  // namespace

ObjectiveWeights WeightsOf(const PlanProblem& problem) {
  if (problem.micro_batches == 0) return {0, 1};
  return {1, static_cast<double>(problem.micro_batches - 1)};
}

DpTable::DpTable(const PlanProblem& problem)
    : problem_(problem),
      layers_(static_cast<int>(problem.layers.size())),
      devices_(static_cast<int>(problem.devices.size())),
      weights_(WeightsOf(problem)),
      parameters_(PrefixSums(problem.layers, &LayerCost::parameter_bytes)),
      fixed_({0}),
      kept_(PrefixSums(problem.layers, &LayerCost::kept_bytes)),
      outputs_(PrefixSums(problem.layers, &LayerCost::output_bytes)),
      bytes_before_(layers_ + 1, 0),
      wires_(WiresOf(problem)) {
  for (int device = 0; device < devices_; ++device) {
    std::vector<double> sums = {0};
    for (int layer = 0; layer < layers_; ++layer) {
      sums.push_back(sums.back() +
                     LayerSeconds(problem, {layer, layer + 1}, device));
    }
    seconds_.push_back(std::move(sums));
  }
  for (const LayerCost& layer : problem.layers) {
    fixed_.push_back(fixed_.back() + FixedBytes(problem, layer));
  }
  for (int layer = 1; layer < layers_; ++layer) {
    bytes_before_[layer] = problem.layers[layer - 1].output_bytes;
  }
}

double DpTable::Work(int first, int last, int device) const {
  const Device& on = problem_.devices[device];
  const double frames_each_way = problem_.training ? 2 : 1;
  const int boundaries = (first > 0) + (last < layers_);
  return ComputeOnly(first, last, device) +
         frames_each_way * (boundaries * on.frame_seconds +
                            (bytes_before_[first] + bytes_before_[last]) *
                                on.frame_seconds_per_byte);
}

StageAmounts DpTable::AmountsOf(LayerRange layers) const {
  const auto [first, last] = layers;
  return {fixed_[last] - fixed_[first], ParameterBytes(first, last),
          kept_[last] - kept_[first], outputs_[last] - outputs_[first],
          bytes_before_[first] + bytes_before_[last]};
}

double DpTable::StageBytes(LayerRange layers, int replicas,
                           int later_devices) const {
  const int earlier = problem_.splits && problem_.stages > 0
                          ? std::max(0, problem_.stages - 1 - later_devices)
                          : 0;
  return BytesOf(problem_, AmountsOf(layers),
                 InFlightOf(problem_, {replicas, earlier, later_devices}));
}

double DpTable::LeastBytes(LayerRange layers) const {
  StageAmounts amounts = AmountsOf(layers);
  amounts.boundary = 0;
  return BytesOf(problem_, amounts, InFlightOf(problem_, {1, 0, 0}));
}

SyncCost DpTable::SyncOf(const std::vector<int>& devices) const {
  const double replicas = static_cast<double>(devices.size());
  if (!problem_.training || replicas < 2) return {};
  double seconds_per_byte = 0;
  double latency = 0;
  for (const int from : devices) {
    for (const int to : devices) {
      if (from == to) continue;
      const LinkCost& link = problem_.links[from][to];
      seconds_per_byte = std::max(seconds_per_byte, 1 / link.bytes_per_second);
      latency = std::max(latency, link.latency_seconds);
    }
  }
  int64_t every = problem_.micro_batches_per_sync;
  if (every == 0) every = std::max<int64_t>(problem_.micro_batches, 1);
  const double rounds = 2 * (replicas - 1) / static_cast<double>(every);
  return {rounds / replicas * seconds_per_byte, rounds * latency};
}

double DpTable::WithSync(LayerRange layers, double compute_seconds,
                         const SyncCost& sync) const {
  const double seconds =
      ParameterBytes(layers.first, layers.last) * sync.seconds_per_byte +
      sync.latency_seconds;
  return problem_.overlap ? std::max(compute_seconds, seconds)
                          : compute_seconds + seconds;
}

double DpTable::StageSeconds(LayerRange layers, const std::vector<int>& devices,
                             const SyncCost& sync,
                             std::vector<double>& shares) const {
  const size_t replicas = devices.size();
  if (replicas == 1) {
    shares.assign(1, 1.0);
    return Work(layers.first, layers.last, devices[0]);
  }
  const double equal = 1.0 / static_cast<double>(replicas);
  shares.resize(replicas);
  double most = 0;
  double least = HUGE_VAL;
  double rate = 0;
  for (size_t i = 0; i < replicas; ++i) {
    const double work = Work(layers.first, layers.last, devices[i]);
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

TransferCost TransferOf(const DpTable& table, int cut, const PlacedStage& left,
                        const PlacedStage& right) {
  const double bytes = table.BytesBefore(cut);
  TransferCost cost;
  for (size_t u = 0; u < left.devices.size(); ++u) {
    double port = 0;
    for (size_t v = 0; v < right.devices.size(); ++v) {
      const WireCost& wire = table.Wire(left.devices[u], right.devices[v]);
      const double seconds = right.shares[v] * bytes * wire.seconds_per_byte;
      port += seconds;
      cost.delay +=
          left.shares[u] * (seconds + right.shares[v] * wire.latency_seconds);
    }
    cost.occupied = std::max(cost.occupied, left.shares[u] * port);
  }
  for (size_t v = 0; v < right.devices.size(); ++v) {
    double port = 0;
    for (size_t u = 0; u < left.devices.size(); ++u) {
      port += left.shares[u] *
              table.Wire(left.devices[u], right.devices[v]).seconds_per_byte;
    }
    cost.occupied = std::max(cost.occupied, right.shares[v] * bytes * port);
  }
  return cost;
}

}  // namespace paceline
