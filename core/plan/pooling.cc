#include "core/plan/pooling.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

namespace paceline {
namespace {

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using Kind = std::tuple<std::string, std::string, bool>;
using Members = std::vector<DeviceProfile*>;

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

std::vector<double> PullsOf(const Members& members) {
  std::vector<double> sums;
  for (DeviceProfile* member : members) sums.push_back(Sum(*member));
  return Pulls(sums, kRepeatability);
}

void PoolKind(const Members& members) {
  const bool cpu = HasQuota(*members.front());
  const std::vector<double> pulls = PullsOf(members);
  for (size_t layer = 0; layer < members.front()->layers.size(); ++layer) {
    Pool(members, pulls, [&](DeviceProfile& profile) -> double& {
      return Time(profile.layers[layer].forward, cpu);
    });
    Pool(members, pulls, [&](DeviceProfile& profile) -> double& {
      return Time(profile.layers[layer].backward, cpu);
    });
    Pool(members, pulls, [&](DeviceProfile& profile) -> double& {
      return profile.layers[layer].update_seconds;
    });
  }
  const std::vector<double> all(members.size(), 1);
  for (double DeviceProfile::*const field :
       {&DeviceProfile::frame_seconds, &DeviceProfile::frame_seconds_per_byte,
        &DeviceProfile::gate_seconds}) {
    Pool(members, all,
         [field](DeviceProfile& profile) -> double& { return profile.*field; });
  }
}

// kind, FLOPs, bytes of the output, of the parameters and kept
using Work = std::tuple<std::string, double, int64_t, int64_t, int64_t>;
using LayerMembers = std::vector<LayerMeasurement*>;

template <typename Value>
void PoolOne(const LayerMembers& members, Value value) {
  std::vector<double> values;
  for (LayerMeasurement* member : members) values.push_back(value(*member));
  Pool(members, Pulls(values, kLayerRepeatability), value);
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

std::vector<double> Pulls(const std::vector<double>& values, double noise) {
  std::vector<double> pulls(values.size(), 0);
  if (values.empty()) return pulls;
  const double median = Median(values);
  if (!(median > 0)) return pulls;
  for (size_t i = 0; i < values.size(); ++i) {
    const double distance = (values[i] / median - 1) / noise;
    pulls[i] = 1 / (1 + distance * distance);
  }
  return pulls;
}

std::vector<DeviceProfile> PoolLikeDevices(
    std::vector<DeviceProfile> profiles) {
  std::map<Kind, Members> kinds;
  for (DeviceProfile& profile : profiles) {
    // Nobody knows what it is.
    if (profile.cpu_model.empty()) continue;
    kinds[{profile.cpu_model, profile.cpu_capability, HasQuota(profile)}]
        .push_back(&profile);
  }
  for (const auto& [kind, members] : kinds) {
    const size_t layers = members.front()->layers.size();
    if (std::all_of(members.begin(), members.end(),
                    [layers](const DeviceProfile* member) {
                      return member->layers.size() == layers;
                    })) {
      PoolKind(members);
    }
  }
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
