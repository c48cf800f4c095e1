#include "core/plan/like_layers.h"

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/plan/pooling.h"

namespace paceline {
namespace {

// kind, FLOPs, bytes of the output, of the parameters and kept
using Work = std::tuple<std::string, double, int64_t, int64_t, int64_t>;
using Members = std::vector<LayerMeasurement*>;

template <typename Value>
void PoolOne(const Members& members, Value value) {
  std::vector<double> values;
  for (LayerMeasurement* member : members) values.push_back(value(*member));
  Pool(members, Pulls(values, kLayerRepeatability), value);
}

void PoolWork(const Members& members) {
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

void PoolLikeLayers(DeviceProfile& profile) {
  std::map<Work, Members> works;
  for (LayerMeasurement& layer : profile.layers) {
    if (!(layer.flops > 0)) continue;
    works[{layer.kind, layer.flops, layer.output_bytes, layer.parameter_bytes,
           layer.kept_bytes}]
        .push_back(&layer);
  }
  for (const auto& [work, members] : works) PoolWork(members);
}

}  // namespace paceline
