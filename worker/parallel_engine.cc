#include "worker/parallel_engine.h"

#include <algorithm>

#include "core/base/status_macros.h"

namespace paceline {

void ParallelEngine::MakeFlat(const EngineOptions& options) {
  offsets_ = ParameterOffsets(options.model, options.layers);
  flat_ =
      Tensor::Allocate(DType::kF32, {static_cast<int64_t>(offsets_.back())});
  const absl::Span<float> all = flat_.As<float>();
  std::fill(all.begin(), all.end(), 0.0f);
}

absl::StatusOr<absl::Span<float>> ParallelEngine::FlatGradient() {
  if (!is_parallel()) return StageEngine::FlatGradient();
  return flat_.As<float>();
}

size_t ParallelEngine::StateBytes() const {
  return is_parallel() ? State().size() : 0;
}

absl::Status ParallelEngine::CopyState(absl::Span<uint8_t> to) {
  if (!is_parallel()) return StageEngine::CopyState(to);
  return State().CopyTo(to);
}

absl::StatusOr<uint64_t> ParallelEngine::StateHash() {
  if (!is_parallel()) return StageEngine::StateHash();
  return State().Hash();
}

absl::Status ParallelEngine::RestoreState(absl::Span<const uint8_t> from) {
  if (!is_parallel()) return StageEngine::RestoreState(from);
  PACELINE_RETURN_IF_ERROR(State().CopyFrom(from));
  OnStateOverwritten();
  return AbandonStep();
}

absl::Status ParallelEngine::AbandonStep() {
  if (!is_parallel()) return StageEngine::AbandonStep();
  DropStep();
  return absl::OkStatus();
}

}  // namespace paceline
