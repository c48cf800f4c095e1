#include "core/plan/pooling.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

namespace paceline {
namespace {

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Puts indices of values that differ only by noise into groups.  The first
// group has the values within 2 x noise of the median (the lower one of an even
// number), relative to it; the next groups come from the remaining values in
// the same way.  Values stay out of all groups once the median of the remaining
// ones is not above 0.
std::vector<std::vector<size_t>> GroupsOfLike(const std::vector<double>& values,
                                              double noise) {
  std::vector<size_t> left(values.size());
  std::iota(left.begin(), left.end(), 0);
  std::ranges::stable_sort(left, {}, [&](size_t i) { return values[i]; });
  std::vector<std::vector<size_t>> groups;
  while (!left.empty()) {
    const double median = values[left[(left.size() - 1) / 2]];
    if (!(median > 0)) break;
    const auto others =
        std::stable_partition(left.begin(), left.end(), [&](size_t i) {
          return std::abs(values[i] / median - 1) <= 2 * noise;
        });
    groups.emplace_back(left.begin(), others);
    left.erase(left.begin(), others);
  }
  return groups;
}

using Members = std::vector<DeviceProfile*>;
// Key without the device, CPU model, capability, whether a quota stops the
// thread, number of layers.
using Kind = std::tuple<ProfileKey, std::string, std::string, bool, size_t>;

bool HasQuota(const DeviceProfile& profile) { return profile.cpu_share < 1; }

double& Time(MeasuredSeconds& seconds, bool cpu) {
  return cpu ? seconds.cpu : seconds.wall;
}

double Sum(DeviceProfile& profile) {
  const bool cpu = HasQuota(profile);
  double sum = 0;
  for (LayerMeasurement& layer : profile.layers) {
    sum += Time(layer.forward, cpu) + Time(layer.backward, cpu);
  }
  return sum;
}

// Returns the spread of the sums of all layers from run to run, relative to the
// sum; 0 for CPU times, which have no spread.  Layers run one after the other,
// so their spreads are independent and add up in squares.  kRepeatability
// covers errors that all layers of a profile share.
double SpreadOfRuns(DeviceProfile& profile) {
  double squares = 0;
  for (const LayerMeasurement& layer : profile.layers) {
    squares += layer.forward.spread * layer.forward.spread +
               layer.backward.spread * layer.backward.spread;
  }
  const double sum = Sum(profile);
  return sum > 0 && !HasQuota(profile) ? std::sqrt(squares) / sum : 0;
}

template <typename Members, typename Value>
void PoolValue(const Members& members, Value value) {
  double sum = 0;
  for (auto* const member : members) sum += value(*member);
  const double mean = sum / static_cast<double>(members.size());
  for (auto* const member : members) value(*member) = mean;
}

// Pools members that differ only by noise.
void PoolAlike(const Members& members) {
  const bool cpu = HasQuota(*members.front());
  for (size_t layer = 0; layer < members.front()->layers.size(); ++layer) {
    PoolValue(members, [&](DeviceProfile& profile) -> double& {
      return Time(profile.layers[layer].forward, cpu);
    });
    PoolValue(members, [&](DeviceProfile& profile) -> double& {
      return Time(profile.layers[layer].backward, cpu);
    });
    PoolValue(members, [&](DeviceProfile& profile) -> double& {
      return profile.layers[layer].update_seconds;
    });
  }
}

void PoolKind(const Members& members, std::vector<LikeDevices>* like) {
  for (double DeviceProfile::*const field :
       {&DeviceProfile::frame_seconds, &DeviceProfile::frame_seconds_per_byte,
        &DeviceProfile::gate_seconds}) {
    PoolValue(members, [field](DeviceProfile& profile) -> double& {
      return profile.*field;
    });
  }
  std::vector<double> sums, spreads;
  for (DeviceProfile* const member : members) {
    sums.push_back(Sum(*member));
    spreads.push_back(SpreadOfRuns(*member));
  }
  const double noise = std::clamp(Median(spreads), kRepeatability, kMostNoise);
  double first_sum = 0;
  for (const std::vector<size_t>& group : GroupsOfLike(sums, noise)) {
    Members alike;
    LikeDevices found;
    double least = sums[group.front()], most = least;
    for (const size_t i : group) {
      alike.push_back(members[i]);
      found.devices.insert(members[i]->key.device);
      least = std::min(least, sums[i]);
      most = std::max(most, sums[i]);
    }
    PoolAlike(alike);
    found.spread = most / least - 1;
    const double sum = Sum(*alike.front());
    if (first_sum == 0) first_sum = sum;
    found.apart = sum / first_sum - 1;
    if (like != nullptr) like->push_back(std::move(found));
  }
}

// Kind, FLOPs, bytes of the output, of the parameters and kept.
using Work = std::tuple<std::string, double, int64_t, int64_t, int64_t>;
using LayerMembers = std::vector<LayerMeasurement*>;

template <typename Value>
void PoolOne(const LayerMembers& members, Value value) {
  std::vector<double> values;
  for (LayerMeasurement* member : members) values.push_back(value(*member));
  for (const std::vector<size_t>& group :
       GroupsOfLike(values, kLayerRepeatability)) {
    LayerMembers alike;
    for (const size_t i : group) alike.push_back(members[i]);
    PoolValue(alike, value);
  }
}

void PoolWork(const LayerMembers& members) {
  for (MeasuredSeconds LayerMeasurement::*const pass :
       {&LayerMeasurement::forward, &LayerMeasurement::backward}) {
    for (double MeasuredSeconds::*const time :
         {&MeasuredSeconds::wall, &MeasuredSeconds::cpu}) {
      PoolOne(members, [pass, time](LayerMeasurement& layer) -> double& {
        return layer.*pass.*time;
      });
    }
  }
  PoolOne(members, [](LayerMeasurement& layer) -> double& {
    return layer.update_seconds;
  });
}

}  // namespace

std::vector<DeviceProfile> PoolLikeDevices(std::vector<DeviceProfile> profiles,
                                           std::vector<LikeDevices>* like) {
  std::map<Kind, Members> kinds;
  for (DeviceProfile& profile : profiles) {
    // A profile without a CPU model cannot be compared.
    if (profile.cpu_model.empty()) continue;
    ProfileKey key = profile.key;
    key.device.clear();
    kinds[{std::move(key), profile.cpu_model, profile.cpu_capability,
           HasQuota(profile), profile.layers.size()}]
        .push_back(&profile);
  }
  for (const auto& [kind, members] : kinds) PoolKind(members, like);
  return profiles;
}

void PoolLikeLayers(DeviceProfile& profile) {
  std::map<Work, LayerMembers> works;
  for (LayerMeasurement& layer : profile.layers) {
    if (!(layer.flops > 0)) continue;
    works[{layer.kind, layer.flops, layer.output_bytes, layer.parameter_bytes,
           layer.kept_bytes}]
        .push_back(&layer);
  }
  for (const auto& [work, members] : works) PoolWork(members);
}

}  // namespace paceline
