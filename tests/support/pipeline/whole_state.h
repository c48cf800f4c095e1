// The state of all layers of an engine as one row of bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

inline std::vector<uint8_t> WholeStateOf(const StageEngine& engine) {
  std::vector<uint8_t> bytes;
  for (const ScatteredBytes& layer : engine.State()) {
    bytes.resize(bytes.size() + layer.size());
    layer.CopyTo(bytes.data() + bytes.size() - layer.size());
  }
  return bytes;
}

// state: of as many bytes as the engine's own
inline absl::Status RestoreWhole(StageEngine& engine,
                                 absl::Span<const uint8_t> state) {
  std::vector<absl::Span<const uint8_t>> layers;
  for (const ScatteredBytes& layer : engine.State()) {
    layers.push_back(state.first(layer.size()));
    state.remove_prefix(layer.size());
  }
  return engine.RestoreState(layers);
}

}  // namespace paceline
