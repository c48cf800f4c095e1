// The weights of a job with adapters (model.lora) as other programs take them:
// the adapters alone, or merged into the weights beside them.  Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/description.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// A linear map with an adapter beside it: names of modules and parameters.
struct AdaptedMap {
  std::string peft_name;  // the module, as Hugging Face's PEFT wraps it
  std::string weight;
  std::string in;         // A [rank, in]
  std::string out;        // B [out, rank]
  bool in_first = false;  // the weight is [in, out]
  double scale = 0;
};

// In layer order; empty: the model has no adapters.
std::vector<AdaptedMap> AdaptedMapsOf(const ModelDescription& model);

// `weights` without adapters: of each map W + scale B A takes the place of W.
// Errors: InvalidArgument  not all of the model's tensors of the maps are there
absl::StatusOr<std::vector<NamedTensor>> MergeAdapters(
    const ModelDescription& model, std::vector<NamedTensor> weights);

// Those of `weights` that trained, adapters and class head, in the names that
// PEFT gives them in adapter_model.safetensors.
std::vector<NamedTensor> PeftTensors(const ModelDescription& model,
                                     const std::vector<NamedTensor>& weights);

}  // namespace paceline
