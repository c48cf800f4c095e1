#include "core/model/description.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"
#include "core/base/errors.h"
#include "core/job/spec/spec_problems.h"
#include "core/model/catalog.h"
#include "core/model/fine_tuning.h"
#include "core/model/stage_drop.h"

namespace paceline {
namespace {

constexpr int64_t kMostInputValues = 1 << 24;

absl::Status CheckRequest(const ModelSpec& spec, const Shape& input,
                          int32_t classes) {
  const bool positive = std::all_of(input.begin(), input.end(),
                                    [](int64_t size) { return size > 0; });
  const int64_t values = NumElements(input);
  if (input.empty() || !positive || values < 1 || values > kMostInputValues) {
    return InvalidArgument(
        "samples of shape [", absl::StrJoin(input, ", "),
        "] cannot be learned from; need sizes of at least 1 and at most ",
        kMostInputValues, " values");
  }
  if (classes < 2) {
    return InvalidArgument("classes is ", classes, ", need at least 2");
  }
  if (!(spec.dropout >= 0 && spec.dropout < 1)) {
    return InvalidArgument("dropout must be in [0, 1), got ", spec.dropout);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeModel(const ModelSpec& spec,
                                               const Shape& input,
                                               int32_t classes) {
  const CatalogEntry* const model = FindModel(spec.name);
  if (model == nullptr) {
    return InvalidArgument("unknown model '", spec.name, "'",
                           MeantText(spec.name, ModelNames()),
                           "; known are: ", absl::StrJoin(ModelNames(), ", "));
  }
  PACELINE_RETURN_IF_ERROR(CheckRequest(spec, input, classes));
  PACELINE_RETURN_IF_ERROR(CheckLora(spec));
  PACELINE_ASSIGN_OR_RETURN(ModelDescription described,
                            model->describe(spec, input, classes));
  PACELINE_RETURN_IF_ERROR(Freeze(spec, described));
  for (Layer& layer : described.layers) layer.init = spec.init;
  NumberBlocks(described);
  described.pruned = !spec.sizes.empty();
  return described;
}

ModelSpec BareModel(ModelSpec spec) {
  spec.lora = {};
  spec.only = kTrainsAll;
  spec.reset_head = false;
  return spec;
}

std::vector<SampleTensor> BoundaryTensors(const Layer& layer) {
  std::vector<SampleTensor> tensors = {{DType::kF32, layer.output}};
  tensors.insert(tensors.end(), layer.beside.begin(), layer.beside.end());
  return tensors;
}

std::vector<SampleTensor> GradientTensors(const Layer& layer) {
  std::vector<SampleTensor> tensors = BoundaryTensors(layer);
  std::erase_if(tensors, [](const SampleTensor& tensor) {
    return tensor.dtype != DType::kF32;
  });
  return tensors;
}

std::vector<SampleTensor> InputTensors(const ModelDescription& model,
                                       int first) {
  if (first > 0) return BoundaryTensors(model.layers[first - 1]);
  return {{model.input_dtype, model.input}};
}

bool HasBuffers(const ModelDescription& model) {
  return std::any_of(
      model.layers.begin(), model.layers.end(), [](const Layer& layer) {
        return std::any_of(layer.parameters.begin(), layer.parameters.end(),
                           [](const Parameter& each) {
                             return !each.trainable && !each.frozen;
                           });
      });
}

bool TrainsBelow(const ModelDescription& model, int layer) {
  return std::any_of(
      model.layers.begin(), model.layers.begin() + layer, [](const Layer& l) {
        return std::any_of(
            l.parameters.begin(), l.parameters.end(),
            [](const Parameter& each) { return each.trainable; });
      });
}

std::vector<SharedParameter> SharedParameters(const ModelDescription& model,
                                              bool frozen_too) {
  std::map<std::string, int> owners;
  std::vector<SharedParameter> shared;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    const int index = static_cast<int>(i);
    for (const Parameter& parameter : layer.borrowed) {
      const auto owner = owners.find(parameter.name);
      PACELINE_CHECK(owner != owners.end(),
                     absl::StrCat(layer.name, " borrows ", parameter.name));
      if (parameter.frozen && !frozen_too) continue;
      shared.push_back({parameter.name, parameter.shape, owner->second, index});
    }
    for (const Parameter& parameter : layer.parameters) {
      owners.emplace(parameter.name, index);
    }
  }
  return shared;
}

bool NeedsWorker(const ModelSpec& spec) {
  return spec.name == kScriptModel && spec.script.layers.empty();
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : ModelCatalog()) {
    names.push_back(entry.model.name);
  }
  return names;
}

}  // namespace paceline
