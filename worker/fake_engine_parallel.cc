// The FakeEngine as member of a round group.
#include <cstring>

#include "worker/fake_engine.h"

namespace paceline {

void FakeEngine::LayFlat() {
  MakeFlat(options_);
  const std::vector<size_t> offsets = GradientOffsets();
  std::map<std::string, const FakeParameter*> owners;
  for (size_t i = 0; i < layers_.size(); ++i) {
    size_t next = offsets[i];
    for (FakeParameter& parameter : layers_[i].parameters) {
      const auto owner = owners.find(parameter.name);
      if (parameter.borrowed && owner != owners.end()) {
        parameter.value = owner->second->value;
        parameter.gradient = owner->second->gradient;
      }
      if (!parameter.trainable || parameter.borrowed) continue;
      parameter.gradient = FlatView(next, parameter.value.shape);
      next += NumElements(parameter.value.shape);
      owners.emplace(parameter.name, &parameter);
    }
  }
  ClearSums();
}

void FakeEngine::ClearSums() {
  for (FakeLayer& layer : layers_) {
    for (FakeParameter& parameter : layer.parameters) {
      if (!parameter.trainable) continue;
      std::memset(parameter.gradient.data.get(), 0, parameter.gradient.bytes());
    }
  }
  ReadOwnSum();
  labels_ = 0;
}

ScatteredBytes FakeEngine::State() const {
  ScatteredBytes state;
  for (const FakeLayer& layer : layers_) {
    for (const FakeParameter& parameter : layer.parameters) {
      if (parameter.borrowed) continue;
      state.Add(parameter.value);
      if (!parameter.trainable) continue;
      for (const Tensor& slot : parameter.state) state.Add(slot);
    }
  }
  return state;
}

void FakeEngine::DropStep() {
  kept_.clear();
  split_.clear();
  ClearSums();
}

}  // namespace paceline
