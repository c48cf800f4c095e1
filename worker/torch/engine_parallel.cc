// The engine as member of a round group.
#include <algorithm>
#include <map>

#include "core/base/status_macros.h"
#include "worker/torch/torch_engine.h"

namespace paceline {

// The view of a layer takes the place of memory of its own, one by one: there
// are never two gradients of the whole stage.
void TorchEngine::LayFlat() {
  const std::vector<size_t> offsets =
      ParameterOffsets(options_.model, options_.layers);
  const auto elements = static_cast<int64_t>(offsets.back());
  flat_ = Tensor::Allocate(DType::kF32, {elements});
  const absl::Span<float> all = flat_.As<float>();
  std::fill(all.begin(), all.end(), 0.0f);
  std::map<std::string, const TorchParameter*> owners;
  for (size_t i = 0; i < layers_.size(); ++i) {
    size_t next = offsets[i];
    for (TorchParameter& parameter : layers_[i].parameters()) {
      if (parameter.borrowed) {
        const auto owner = owners.find(parameter.name);
        if (owner != owners.end()) parameter.Share(*owner->second);
      } else if (parameter.trainable) {
        const Shape& shape = parameter.value.shape;
        parameter.SumIn(ViewOf(flat_, next, shape));
        next += NumElements(shape);
        owners.emplace(parameter.name, &parameter);
      }
    }
  }
}

absl::StatusOr<absl::Span<float>> TorchEngine::FlatGradient() {
  if (!is_parallel()) return StageEngine::FlatGradient();
  return flat_.As<float>();
}

std::vector<size_t> TorchEngine::GradientOffsets() const {
  if (!is_parallel()) return {};
  return ParameterOffsets(options_.model, options_.layers);
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

size_t TorchEngine::StateBytes() const {
  return is_parallel() ? State().size() : 0;
}

absl::Status TorchEngine::CopyState(absl::Span<uint8_t> to) {
  if (!is_parallel()) return StageEngine::CopyState(to);
  return State().CopyTo(to);
}

absl::StatusOr<uint64_t> TorchEngine::StateHash() {
  if (!is_parallel()) return StageEngine::StateHash();
  return State().Hash();
}

absl::Status TorchEngine::RestoreState(absl::Span<const uint8_t> from) {
  if (!is_parallel()) return StageEngine::RestoreState(from);
  PACELINE_RETURN_IF_ERROR(State().CopyFrom(from));
  products_.ForgetAll();
  return AbandonStep();
}

absl::Status TorchEngine::AbandonStep() {
  if (!is_parallel()) return StageEngine::AbandonStep();
  kept_.clear();
  split_.clear();
  ClearSums();
  return absl::OkStatus();
}

}  // namespace paceline
