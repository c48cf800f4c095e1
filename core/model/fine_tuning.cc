#include "core/model/fine_tuning.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/counted.h"
#include "core/base/errors.h"
#include "core/model/catalog.h"
#include "core/model/chain.h"
#include "core/model/operation.h"

namespace paceline {
namespace {

bool IsOfNorm(const Layer& layer, const Parameter& parameter) {
  return std::any_of(
      layer.operations.begin(), layer.operations.end(),
      [&](const Operation& operation) {
        if (!Owns(operation, parameter)) return false;
        return absl::StartsWith(operation.kind, "layer_norm") ||
               operation.kind == "batch_norm2d" ||
               // Its batch_norm2d.
               (operation.kind == "residual_project" &&
                absl::StartsWith(parameter.name, operation.name + ".1."));
      });
}

// The first of the layers that train.
absl::StatusOr<int> FirstOf(const ModelSpec& spec,
                            const ModelDescription& model) {
  const int layers = static_cast<int>(model.layers.size());
  if (spec.only == kTrainsAll || spec.only == "norm") return 0;
  if (spec.only == "head") {
    int last = layers - 1;
    while (last > 0 && model.layers[last].parameters.empty()) --last;
    return last;
  }
  absl::string_view count = spec.only;
  int last = 0;
  if (!absl::ConsumePrefix(&count, "last-") ||
      !absl::SimpleAtoi(count, &last) || last < 1) {
    return InvalidArgument(
        "train.only must be all, head, norm, or last-N with N layers, got '",
        absl::CHexEscape(spec.only), "'");
  }
  if (last > layers) {
    return InvalidArgument("train.only is ", spec.only, ", but ", model.name,
                           " has only ", Counted(layers, "layer"));
  }
  return layers - last;
}

// A backward computes gradients of inputs and of weights, each as long as a
// forward.
void CountBackwards(ModelDescription& model) {
  bool trains = false;  // something here or below
  for (Layer& layer : model.layers) {
    double weights = 0, trained = 0;
    for (const Parameter& parameter : layer.parameters) {
      trains = trains || parameter.trainable;
      if (parameter.shape.size() < 2) continue;
      const auto elements = static_cast<double>(NumElements(parameter.shape));
      weights += elements;
      if (parameter.trainable) trained += elements;
    }
    const double of_weights = weights > 0 ? trained / weights : 1;
    layer.backward_share = trains ? (1 + of_weights) / 2 : 0;
  }
}

// first: as FirstOf()
bool Trains(const ModelSpec& spec, const ModelDescription& model, int first,
            int layer, const Parameter& parameter) {
  if (spec.lora.rank > 0) {
    return IsOfAdapter(parameter) ||
           (!model.head.empty() &&
            absl::StartsWith(parameter.name, model.head + "."));
  }
  return layer >= first &&
         (spec.only != "norm" || IsOfNorm(model.layers[layer], parameter));
}

}  // namespace

absl::Status CheckLora(const ModelSpec& spec) {
  const LoraSpec& lora = spec.lora;
  PACELINE_RETURN_IF_ERROR(
      CheckModelSize(spec, "lora.rank", lora.rank, 0, kMostRank));
  if (lora.rank == 0) {
    if (lora.targets.empty()) return absl::OkStatus();
    return InvalidArgument(
        "model.lora.targets without model.lora.rank, which is 0: set it to 1 "
        "or more, or leave model.lora out");
  }
  if (!(lora.alpha > 0 && lora.alpha <= 1e6)) {
    return InvalidArgument(
        "model.lora.alpha must be greater than 0 and at most 1000000, got ",
        lora.alpha);
  }
  if (!ModelReads(spec.name, "heads")) {
    return InvalidArgument("model.lora is for transformers, and ", spec.name,
                           " is none; train.only freezes parts of any model");
  }
  if (spec.only != kTrainsAll) {
    return InvalidArgument("train.only is ", spec.only,
                           " beside model.lora, which trains adapters and the "
                           "class head: leave one of them out");
  }
  return absl::OkStatus();
}

absl::Status Freeze(const ModelSpec& spec, ModelDescription& model) {
  PACELINE_ASSIGN_OR_RETURN(const int first, FirstOf(spec, model));
  if (spec.only == kTrainsAll && spec.lora.rank == 0) return absl::OkStatus();
  std::set<std::string> frozen;
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    Layer& layer = model.layers[i];
    for (Parameter& parameter : layer.parameters) {
      if (!parameter.trainable || Trains(spec, model, first, i, parameter)) {
        continue;
      }
      parameter.trainable = false;
      parameter.frozen = true;
      frozen.insert(parameter.name);
    }
    for (Parameter& parameter : layer.borrowed) {
      parameter.frozen = frozen.contains(parameter.name);
      parameter.trainable = !parameter.frozen;
    }
  }
  if (!TrainsBelow(model, static_cast<int>(model.layers.size()))) {
    return InvalidArgument("train.only is ", spec.only, ", but ", model.name,
                           " has no such parameters: nothing would train");
  }
  CountBackwards(model);
  return absl::OkStatus();
}

}  // namespace paceline
