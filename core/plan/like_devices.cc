#include "core/plan/like_devices.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>

#include "core/plan/pooling.h"

namespace paceline {
namespace {

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

}  // namespace

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

}  // namespace paceline
