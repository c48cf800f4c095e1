// The engine as member of a round group.
#include <map>
#include <string>
#include <vector>

#include "worker/torch/torch_engine.h"

namespace paceline {

// The view of a layer takes the place of memory of its own, one by one: there
// are never two gradients of the whole stage.
void TorchEngine::LayFlat() {
  MakeFlat(options_);
  const std::vector<size_t> offsets = GradientOffsets();
  std::map<std::string, const TorchParameter*> owners;
  for (size_t i = 0; i < layers_.size(); ++i) {
    size_t next = offsets[i];
    for (TorchParameter& parameter : layers_[i].parameters()) {
      if (parameter.borrowed) {
        const auto owner = owners.find(parameter.name);
        if (owner != owners.end()) parameter.Share(*owner->second);
      } else if (parameter.trainable) {
        const Shape& shape = parameter.value.shape;
        parameter.SumIn(FlatView(next, shape));
        next += NumElements(shape);
        owners.emplace(parameter.name, &parameter);
      }
    }
  }
}

ScatteredBytes TorchEngine::State() const {
  ScatteredBytes state;
  for (const TorchLayer& layer : layers_) {
    for (const TorchParameter& parameter : layer.parameters()) {
      if (parameter.borrowed) continue;
      state.Add(parameter.value);
      for (const Tensor& slot : parameter.state) state.Add(slot);
    }
  }
  return state;
}

void TorchEngine::DropStep() {
  kept_.clear();
  split_.clear();
  ClearSums();
}

}  // namespace paceline
