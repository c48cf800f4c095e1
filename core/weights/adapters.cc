#include "core/weights/adapters.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/model/operation.h"

namespace paceline {
namespace {

// PEFT wraps a torch.nn.MultiheadAttention as a whole, whose first map has no
// module of its own, and then the second inside.
std::string PeftName(const Operation& operation, const LinearMap& map) {
  if (operation.kind != "multihead_attention") return map.name;
  return absl::StrCat(operation.name, absl::EndsWith(map.name, ".out_proj")
                                          ? ".base_layer.out_proj"
                                          : "");
}

// W + scale B A, the sums in double.
Tensor Merged(const AdaptedMap& map, const Tensor& weight, const Tensor& in,
              const Tensor& out) {
  Tensor merged = Tensor::Allocate(weight.dtype, weight.shape);
  const absl::Span<const float> w = weight.As<float>(), a = in.As<float>(),
                                b = out.As<float>();
  const absl::Span<float> to = merged.As<float>();
  const int64_t rank = in.shape[0], width = in.shape[1], rows = out.shape[0];
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<double> row(width);
    for (int64_t r = 0; r < rank; ++r) {
      const double factor = b[i * rank + r];
      for (int64_t j = 0; j < width; ++j) row[j] += factor * a[r * width + j];
    }
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = map.in_first ? j * rows + i : i * width + j;
      to[at] = static_cast<float>(w[at] + map.scale * row[j]);
    }
  }
  return merged;
}

}  // namespace

std::vector<AdaptedMap> AdaptedMapsOf(const ModelDescription& model) {
  std::vector<AdaptedMap> maps;
  for (const Layer& layer : model.layers) {
    for (const Operation& operation : layer.operations) {
      const auto& [beside, rank, scale] = operation.adapters;
      std::vector<Parameter> own;
      std::copy_if(layer.parameters.begin(), layer.parameters.end(),
                   std::back_inserter(own), [&](const Parameter& parameter) {
                     return Owns(operation, parameter);
                   });
      for (const LinearMap& map : LinearMapsOf(operation, own)) {
        if (std::find(beside.begin(), beside.end(), map.weight) ==
            beside.end()) {
          continue;
        }
        maps.push_back({PeftName(operation, map), own[map.weight].name,
                        absl::StrCat(map.name, kAdapterIn),
                        absl::StrCat(map.name, kAdapterOut), map.in_first,
                        scale});
      }
    }
  }
  return maps;
}

absl::StatusOr<std::vector<NamedTensor>> MergeAdapters(
    const ModelDescription& model, std::vector<NamedTensor> weights) {
  std::map<std::string, Tensor*> by_name;
  for (NamedTensor& each : weights) by_name[each.name] = &each.tensor;
  for (const AdaptedMap& map : AdaptedMapsOf(model)) {
    for (const std::string& name : {map.weight, map.in, map.out}) {
      if (by_name.contains(name)) continue;
      return InvalidArgument("there is no tensor ", name);
    }
    Tensor& weight = *by_name[map.weight];
    weight = Merged(map, weight, *by_name[map.in], *by_name[map.out]);
  }
  std::erase_if(weights, [](const NamedTensor& each) {
    return IsOfAdapter({each.name, each.tensor.shape});
  });
  return weights;
}

std::vector<NamedTensor> PeftTensors(const ModelDescription& model,
                                     const std::vector<NamedTensor>& weights) {
  constexpr char kModel[] = "base_model.model.";
  std::map<std::string, std::string> names;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.trainable) names[parameter.name] = parameter.name;
    }
  }
  for (const AdaptedMap& map : AdaptedMapsOf(model)) {
    names[map.in] = absl::StrCat(map.peft_name, kAdapterIn);
    names[map.out] = absl::StrCat(map.peft_name, kAdapterOut);
  }
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& each : weights) {
    const auto name = names.find(each.name);
    if (name == names.end()) continue;
    tensors.push_back({absl::StrCat(kModel, name->second), each.tensor});
  }
  return tensors;
}

}  // namespace paceline
