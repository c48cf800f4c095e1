// A model whose numbers can be added up in one's head.
#pragma once

#include "absl/strings/str_cat.h"
#include "core/model/description.h"

namespace paceline {

// Layer i has 100 * (i + 1) bytes of parameters; each keeps 10 bytes a sample
// for backward and puts out 4 bytes a sample.
inline ModelDescription SmallModel(int layers) {
  ModelDescription model;
  model.name = "small";
  model.input = {1};
  model.classes = 1;
  for (int i = 0; i < layers; ++i) {
    Layer layer;
    layer.name = absl::StrCat("layer", i);
    layer.output = {1};
    layer.parameter_bytes = 100 * (i + 1);
    layer.output_bytes = 4;
    layer.activation_bytes = 10;
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace paceline
