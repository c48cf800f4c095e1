#include "tests/core/plan/random_instances.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/cost_table.h"

namespace paceline {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  // `percent` is a part of 100.
  bool Chance(int percent) { return random_.Below(100) < uint64_t(percent); }
  int Between(int least, int most) {
    return least + static_cast<int>(random_.Below(uint64_t(most - least + 1)));
  }
  double Between(double least, double most) {
    return least + (most - least) * double(random_.Unit());
  }
  // Over `decades` powers of ten from `least` on.
  double Decades(double least, int decades) {
    double value = least * Between(1.0, 10.0);
    for (int i = Between(0, decades - 1); i > 0; --i) value *= 10;
    return value;
  }

 private:
  SplitMix64 random_;
};

void AddLayers(Dice& dice, int count, PlanProblem& problem) {
  const bool alike = dice.Chance(20);
  for (int i = 0; i < count; ++i) {
    LayerCost layer;
    if (alike && i > 0) layer = problem.layers[0];
    layer.name = absl::StrCat("layer", i);
    if (!alike || i == 0) {
      layer.forward_seconds = dice.Decades(0.01, 2);
      layer.backward_seconds = layer.forward_seconds * dice.Between(0.5, 3.0);
      layer.output_bytes = std::floor(dice.Decades(100, 2));
      layer.parameter_bytes = std::floor(dice.Decades(100, 2));
      layer.kept_bytes = std::floor(dice.Decades(100, 2));
    }
    problem.layers.push_back(layer);
  }
}

void AddDevices(Dice& dice, int count, PlanProblem& problem) {
  const bool frames = dice.Chance(30);
  for (int i = 0; i < count; ++i) {
    Device device;
    if (i > 0 && dice.Chance(30)) {
      device = problem.devices[dice.Between(0, i - 1)];
    } else {
      device.speed = dice.Between(0.2, 4.0);
      if (dice.Chance(15)) {
        for (const LayerCost& layer : problem.layers) {
          device.layer_seconds.push_back(layer.forward_seconds *
                                         dice.Between(0.3, 3.0));
        }
      }
      if (frames) {
        device.frame_seconds = dice.Between(0.0, 0.05);
        device.frame_seconds_per_byte = dice.Between(0.0, 1e-5);
      }
    }
    device.name = absl::StrCat("device", i);
    device.machine = dice.Between(0, 1);
    problem.devices.push_back(device);
  }
}

void AddLinks(Dice& dice, PlanProblem& problem) {
  const size_t devices = problem.devices.size();
  const bool free = dice.Chance(10);
  const bool alike = dice.Chance(25);
  const LinkCost one = {dice.Decades(1e3, 3), dice.Between(0.0, 0.02)};
  problem.links.assign(devices, std::vector<LinkCost>(devices));
  for (auto& row : problem.links) {
    for (LinkCost& link : row) {
      link = one;
      if (!alike) link = {dice.Decades(1e3, 3), dice.Between(0.0, 0.05)};
      if (free) link = {HUGE_VAL, 0};
    }
  }
}

// Around what an equal part of the whole needs: some are wide, some hopeless.
void AddMemory(Dice& dice, PlanProblem& problem) {
  double whole = 0;
  for (const LayerCost& layer : problem.layers) {
    whole += problem.parameter_copies * layer.parameter_bytes +
             layer.kept_bytes + layer.output_bytes;
  }
  if (dice.Chance(20)) problem.reserved_bytes = std::floor(whole / 20);
  const double part = whole / double(problem.devices.size());
  const double width = dice.Between(0.5, 4.0);
  for (Device& device : problem.devices) {
    if (dice.Chance(10)) continue;
    device.memory_bytes = 1 + std::floor(part * width * dice.Between(0.3, 1.5));
  }
}

}  // namespace

PlanProblem RandomProblem(uint64_t seed) {
  Dice dice(MixSeed({seed, 0x696e7374}));
  PlanProblem problem;
  const int devices = dice.Chance(60) ? dice.Between(4, 5) : dice.Between(1, 5);
  const int layers = dice.Chance(60) ? dice.Between(6, 8) : dice.Between(1, 8);
  problem.training = dice.Chance(70);
  AddLayers(dice, layers, problem);
  AddDevices(dice, devices, problem);
  AddLinks(dice, problem);
  problem.micro_batches = dice.Chance(30)   ? 0
                          : dice.Chance(20) ? 100
                                            : dice.Between(1, 12);
  problem.overlap = dice.Chance(65);
  if (dice.Chance(30)) problem.micro_batches_per_sync = dice.Between(1, 16);
  problem.parameter_copies = dice.Between(2, 4);
  problem.keeps_all = dice.Chance(20);
  problem.stashes = dice.Chance(20);
  problem.replicas = dice.Chance(65);
  problem.uneven_shares = dice.Chance(60);
  if (dice.Chance(25)) {
    problem.stages = dice.Between(1, std::min(layers, devices));
  }
  if (dice.Chance(60)) AddMemory(dice, problem);
  if (dice.Chance(20)) problem.splits = true;
  if (dice.Chance(20)) {
    problem.owner_copies = dice.Between(0, 2);
    for (LayerCost& layer : problem.layers) {
      if (dice.Chance(50)) layer.borrowed_bytes = layer.parameter_bytes;
    }
  }
  problem.sync_overlaps = dice.Chance(60);
  if (dice.Chance(20)) problem.segment_layers = dice.Between(1, layers + 1);
  if (dice.Chance(20)) {
    problem.same_versions = true;
    problem.version_copies = 1.5;
    problem.input_bytes = 100;
    for (LayerCost& layer : problem.layers) {
      layer.decoded_bytes = 2 * layer.output_bytes;
    }
  }
  return problem;
}

PlanProblem LargeProblem(int layers, int devices, uint64_t seed) {
  Dice dice(MixSeed({seed, 0x6c61726765}));
  PlanProblem problem;
  problem.micro_batches = 64;
  for (int i = 0; i < layers; ++i) {
    LayerCost layer;
    layer.name = absl::StrCat("layer", i);
    layer.forward_seconds = dice.Between(0.001, 0.02);
    layer.backward_seconds = 2 * layer.forward_seconds;
    layer.output_bytes = std::floor(dice.Decades(1e4, 2));
    layer.parameter_bytes = std::floor(dice.Decades(1e4, 2));
    layer.kept_bytes = layer.output_bytes;
    problem.layers.push_back(layer);
  }
  problem.links.assign(size_t(devices), std::vector<LinkCost>(devices));
  for (int i = 0; i < devices; ++i) {
    Device device;
    device.name = absl::StrCat("device", i);
    device.speed = dice.Between(0.25, 4.0);
    problem.devices.push_back(device);
    for (LinkCost& link : problem.links[i]) {
      link = {dice.Decades(1e6, 3), dice.Between(0.0, 0.001)};
    }
  }
  return problem;
}

Placement RandomPlacement(const PlanProblem& problem, SplitMix64& random) {
  const int layers = static_cast<int>(problem.layers.size());
  std::vector<int> order;
  for (int i = 0; i < int(problem.devices.size()); ++i) order.push_back(i);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  Placement placement;
  int first = 0;
  size_t next = 0;
  while (first < layers) {
    PlacedStage stage;
    const size_t left = order.size() - next;
    stage.layers = {first, first + 1 + int(random.Below(layers - first))};
    if (left == 1) stage.layers.last = layers;
    const bool last = stage.layers.last == layers;
    const size_t replicas = 1 + random.Below(last ? left : left - 1);
    for (size_t i = 0; i < replicas; ++i)
      stage.devices.push_back(order[next++]);
    std::sort(stage.devices.begin(), stage.devices.end());
    stage.shares = SharesFor(CostTable(problem), stage.layers, stage.devices);
    if (random.Below(2) == 0) {
      double total = 0;
      for (double& share : stage.shares) {
        share = 0.1 + double(random.Unit());
        total += share;
      }
      for (double& share : stage.shares) share /= total;
    }
    placement.push_back(stage);
    first = stage.layers.last;
  }
  return placement;
}

namespace {

// One thing that is busy for a while with each micro-batch, and lets it go on
// after another while.
struct Resource {
  double busy = 0;
  double passes = 0;
};

double BytesAfter(const PlanProblem& problem, int layer) {
  const int last = static_cast<int>(problem.layers.size()) - 1;
  return layer < 0 || layer == last ? 0 : problem.layers[layer].output_bytes;
}

// The device's thread is busy so long with a whole micro-batch of the stage.
double ThreadSeconds(const PlanProblem& problem, const PlacedStage& stage,
                     int index) {
  const Device& device = problem.devices[index];
  double seconds = 0;
  for (int layer = stage.layers.last - 1; layer >= stage.layers.first;
       --layer) {
    double work = problem.layers[layer].forward_seconds;
    if (problem.training) work += problem.layers[layer].backward_seconds;
    work /= device.speed;
    if (!device.layer_seconds.empty()) work = device.layer_seconds[layer];
    seconds += work;
  }
  const auto frame = [&](int layer) {
    const double once =
        device.frame_seconds +
        BytesAfter(problem, layer) * device.frame_seconds_per_byte;
    seconds += once;                        // the activation
    if (problem.training) seconds += once;  // the gradient
  };
  if (stage.layers.first != 0) frame(stage.layers.first - 1);
  if (stage.layers.last != int(problem.layers.size())) {
    frame(stage.layers.last - 1);
  }
  return seconds;
}

// A ring of m: the pieces go round twice less one hop, each of w / m bytes.
double RingSeconds(const PlanProblem& problem, const PlacedStage& stage) {
  double slowest = HUGE_VAL;
  double latest = 0;
  for (size_t a = 0; a < stage.devices.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const LinkCost& up = problem.links[stage.devices[a]][stage.devices[b]];
      const LinkCost& down = problem.links[stage.devices[b]][stage.devices[a]];
      slowest = std::min({slowest, up.bytes_per_second, down.bytes_per_second});
      latest = std::max({latest, up.latency_seconds, down.latency_seconds});
    }
  }
  double piece = 0;
  for (int layer = stage.layers.first; layer < stage.layers.last; ++layer) {
    piece +=
        problem.layers[layer].parameter_bytes / double(stage.devices.size());
  }
  double seconds = 0;
  for (size_t hop = 1; hop < stage.devices.size(); ++hop) {
    seconds += piece / slowest + latest;  // reduce
    seconds += piece / slowest + latest;  // gather
  }
  return seconds;
}

double StageTime(const PlanProblem& problem, const PlacedStage& stage) {
  double slowest = 0;
  for (size_t i = 0; i < stage.devices.size(); ++i) {
    slowest =
        std::max(slowest, ThreadSeconds(problem, stage, stage.devices[i]) *
                              stage.shares[i]);
  }
  if (!problem.training) return slowest;
  double every = double(problem.micro_batches_per_sync);
  if (every == 0) every = double(problem.micro_batches);
  if (every == 0) every = 1;
  const double ring = RingSeconds(problem, stage) / every;
  return SyncOverlaps(problem) ? std::max(slowest, ring) : slowest + ring;
}

// A boundary as a resource: the busiest of its ports, and the mean way of a
// micro-batch over all routes.
Resource BoundaryTime(const PlanProblem& problem, const PlacedStage& left,
                      const PlacedStage& right) {
  std::map<int, double> ports;
  Resource boundary;
  const double bytes = BytesAfter(problem, left.layers.last - 1);
  for (size_t i = 0; i < left.devices.size() * right.devices.size(); ++i) {
    const size_t u = i / right.devices.size();
    const size_t v = i % right.devices.size();
    const double part = left.shares[u] * right.shares[v];
    const int ends[2] = {left.devices[u], right.devices[v]};
    for (int way = 0; way < (problem.training ? 2 : 1); ++way) {
      const LinkCost& link = problem.links[ends[way]][ends[1 - way]];
      for (const int end : ends) {
        ports[end] += part * bytes / link.bytes_per_second;
      }
      boundary.passes +=
          part * (bytes / link.bytes_per_second + link.latency_seconds);
    }
  }
  for (const auto& [device, busy] : ports) {
    boundary.busy = std::max(boundary.busy, busy);
  }
  return boundary;
}

// When the last micro-batch has left the last resource.
double SendThrough(const std::vector<Resource>& table, int64_t micro_batches) {
  std::vector<double> free(table.size(), 0);
  double left = 0;
  for (int64_t b = 0; b < micro_batches; ++b) {
    left = 0;
    for (size_t r = 0; r < table.size(); ++r) {
      const double start = std::max(left, free[r]);
      free[r] = start + table[r].busy;
      left = start + table[r].passes;
    }
  }
  return left;
}

// A turn of its own, and one for each turn of `others`.
int64_t Turns(int others, int replicas) {
  int64_t turns = 1;
  for (int left = others; left >= replicas; left -= replicas) ++turns;
  return turns;
}

double InMemory(const LayerCost& layer) {
  return layer.decoded_bytes == 0 ? layer.output_bytes : layer.decoded_bytes;
}

double EntersAt(const PlanProblem& problem, int layer) {
  return layer == 0 ? problem.input_bytes : InMemory(problem.layers[layer - 1]);
}

// Bytes of one micro-batch at a time: the largest segment, forward only the
// largest layer with its output.
double OnceBytes(const PlanProblem& problem, const LayerRange& layers) {
  double most = 0;
  for (int first = layers.first; first < layers.last; ++first) {
    const LayerCost& on = problem.layers[first];
    if (!problem.training) most = std::max(most, on.kept_bytes + InMemory(on));
    if (!problem.training || problem.segment_layers == 0) continue;
    if ((first - layers.first) % problem.segment_layers != 0) continue;
    double segment = 0;
    for (int layer = first;
         layer < std::min(first + problem.segment_layers, layers.last);
         ++layer) {
      segment += problem.layers[layer].kept_bytes;
    }
    most = std::max(most, segment);
  }
  return most;
}

double MemoryOf(const PlanProblem& problem, const PlacedStage& stage,
                int earlier_devices, int later_devices) {
  const int replicas = static_cast<int>(stage.devices.size());
  const int waits_for = later_devices + (problem.splits ? earlier_devices : 0);
  // Where no backward is put off, a begun turn counts.
  int64_t held = problem.splits ? Turns(waits_for, replicas)
                                : Turns(waits_for + replicas - 1, replicas);
  int64_t halved = problem.splits ? Turns(earlier_devices, replicas) : 0;
  if (problem.micro_batches > 0 && !problem.stashes) {
    // One replica may have nearly all of them.
    const int64_t all = problem.micro_batches;
    if (problem.keeps_all || all < held) held = all;
    halved = std::min(halved, all);
  }
  int64_t copies = held - 1;
  if (problem.same_versions) copies = earlier_devices + later_devices;
  double bytes = problem.reserved_bytes + OnceBytes(problem, stage.layers);
  for (int layer = stage.layers.first; layer < stage.layers.last; ++layer) {
    const LayerCost& on = problem.layers[layer];
    bytes +=
        problem.parameter_copies * (on.parameter_bytes - on.borrowed_bytes);
    bytes +=
        (problem.parameter_copies - problem.owner_copies) * on.borrowed_bytes;
    if (!problem.training) continue;
    const bool recomputes = problem.segment_layers > 0;
    const bool begins =
        recomputes &&
        (layer - stage.layers.first) % problem.segment_layers == 0;
    for (int64_t b = 0; b < halved; ++b) {
      bytes += InMemory(on) + (recomputes ? on.kept_bytes : 0);
    }
    for (int64_t b = 0; b < held; ++b) {
      if (!recomputes) bytes += on.kept_bytes;
      if (begins) bytes += EntersAt(problem, layer);
    }
    for (int64_t copy = 0; problem.stashes && copy < copies; ++copy) {
      bytes += problem.version_copies * on.parameter_bytes;
    }
  }
  const bool ends = stage.layers.last == int(problem.layers.size());
  for (int frame = 0; frame < 2; ++frame) {
    if (stage.layers.first > 0) bytes += EntersAt(problem, stage.layers.first);
    if (!ends) bytes += EntersAt(problem, stage.layers.last);
  }
  return bytes;
}

}  // namespace

Judgement Judge(const PlanProblem& problem, const Placement& placement) {
  Judgement judged;
  std::vector<Resource> table;
  for (size_t s = 0; s < placement.size(); ++s) {
    if (s > 0) {
      table.push_back(BoundaryTime(problem, placement[s - 1], placement[s]));
    }
    const double seconds = StageTime(problem, placement[s]);
    judged.stage_seconds.push_back(seconds);
    table.push_back({seconds, seconds});
  }
  if (!problem.overlap) {
    // The frames on their way hold up both ends, and no port of their own.
    for (size_t r = 1; r < table.size(); r += 2) {
      table[r - 1].busy += table[r].passes;
      table[r + 1].busy += table[r].passes;
      table[r].busy = 0;
    }
  }
  for (const Resource& resource : table) {
    judged.bottleneck_seconds =
        std::max(judged.bottleneck_seconds, resource.busy);
  }
  judged.step_seconds = problem.micro_batches == 0
                            ? judged.bottleneck_seconds
                            : SendThrough(table, problem.micro_batches);
  judged.memory_bytes.assign(problem.devices.size(), 0);
  int later = 0;
  int earlier = 0;
  for (const PlacedStage& stage : placement) {
    earlier += static_cast<int>(stage.devices.size());
  }
  for (size_t s = placement.size(); s-- > 0;) {
    earlier -= static_cast<int>(placement[s].devices.size());
    for (const int device : placement[s].devices) {
      const double bytes = MemoryOf(problem, placement[s], earlier, later);
      const double there = problem.devices[device].memory_bytes;
      judged.memory_bytes[device] = bytes;
      if (there > 0 && bytes > there) judged.fits = false;
    }
    later += static_cast<int>(placement[s].devices.size());
  }
  return judged;
}

}  // namespace paceline
