#pragma once

namespace paceline {

// Layers [first, last) of the model's chain.
struct LayerRange {
  int first = 0;
  int last = 0;

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

}  // namespace paceline
