// A model whose numbers can be added up in one's head, and measurements of it.
#pragma once

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/model/description.h"
#include "core/plan/inputs.h"

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

inline DeviceProfile ProfileOf(const JobSpec& spec,
                               const ModelDescription& model,
                               const std::string& device,
                               LayerMeasurement of_each_layer) {
  DeviceProfile profile;
  profile.key = {ModelKey(spec.model, model.input, model.classes),
                 spec.train.micro_batch, "f32", spec.threads, device};
  for (const Layer& layer : model.layers) {
    of_each_layer.name = layer.name;
    profile.layers.push_back(of_each_layer);
  }
  return profile;
}

// Measurements of workers, by their names, that are linked by 10^12 bytes a
// second.
inline Measurements MeasuredOn(
    const JobSpec& spec, const ModelDescription& model,
    const std::map<std::string, LayerMeasurement>& of_each_layer) {
  Measurements measurements;
  for (const auto& [worker, layer] : of_each_layer) {
    const DeviceProfile profile = ProfileOf(spec, model, worker, layer);
    measurements.profiles[profile.key] = profile;
    for (const auto& [other, unused] : of_each_layer) {
      measurements.links[{worker, other}] = {worker, other, 1e12, 0, 0};
    }
  }
  return measurements;
}

}  // namespace paceline
