// Weights that a model shall begin with, out of a file.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/job/made_with.h"
#include "core/model/description.h"
#include "core/model/layer_range.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// Reads what the layers of a stage own or borrow out of the safetensors file
// `spec.weights`, and nothing else of its data; the whole header is compared
// with the whole model first, so that every worker says the same.  Short
// floats become float32; names of published files (PublishedNames) the model's.
// Left out, and so left as they were drawn: the class head where
// spec.reset_head says so, and counts and adapters that the file does not have.
// With no layers at all only the header is looked at.
//   origin  is filled in where it is not null
//
// Errors (all name the file):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument  not safetensors (ReadSafetensors), or not this model's:
//                    as CheckWeights() says it; a tied tensor that is there
//                    twice and differs; a tensor that holds NaN or infinity;
//                    made for something else, as CheckMadeWith() says it
absl::StatusOr<std::vector<NamedTensor>> LoadWeights(
    const ModelSpec& spec, const ModelDescription& model,
    const LayerRange& layers, WeightsOrigin* origin = nullptr);

}  // namespace paceline
