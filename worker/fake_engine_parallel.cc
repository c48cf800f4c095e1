// The FakeEngine as member of a round group.
#include <cstring>

#include "core/base/status_macros.h"
#include "worker/fake_engine.h"

namespace paceline {

void FakeEngine::LayFlat() {
  const std::vector<size_t> offsets = GradientOffsets();
  const auto elements = static_cast<int64_t>(offsets.back());
  flat_ = Tensor::Allocate(DType::kF32, {elements});
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
      parameter.gradient = ViewOf(flat_, next, parameter.value.shape);
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
  labels_ = 0;
}

absl::StatusOr<absl::Span<float>> FakeEngine::FlatGradient() {
  if (!options_.flat_gradient) return StageEngine::FlatGradient();
  return flat_.As<float>();
}

std::vector<size_t> FakeEngine::GradientOffsets() const {
  if (!options_.flat_gradient) return {};
  return ParameterOffsets(options_.model, options_.layers);
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

size_t FakeEngine::StateBytes() const {
  return options_.flat_gradient ? State().size() : 0;
}

absl::Status FakeEngine::CopyState(absl::Span<uint8_t> to) {
  if (!options_.flat_gradient) return StageEngine::CopyState(to);
  return State().CopyTo(to);
}

absl::StatusOr<uint64_t> FakeEngine::StateHash() {
  if (!options_.flat_gradient) return StageEngine::StateHash();
  return State().Hash();
}

absl::Status FakeEngine::RestoreState(absl::Span<const uint8_t> from) {
  if (!options_.flat_gradient) return StageEngine::RestoreState(from);
  PACELINE_RETURN_IF_ERROR(State().CopyFrom(from));
  return AbandonStep();
}

absl::Status FakeEngine::AbandonStep() {
  if (!options_.flat_gradient) return StageEngine::AbandonStep();
  kept_.clear();
  split_.clear();
  ClearSums();
  return absl::OkStatus();
}

}  // namespace paceline
