// Weights that a model shall begin with, out of a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job/job_model.h"
#include "core/model/description.h"
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

// --- whether the tensors of a file are those of a model, by which names ---

// Whether `parameter` belongs to the classifier: the last operation of the last
// layer, whose size is the count of classes.  One that is borrowed does not: it
// is an embedding too.
bool IsHead(const ModelDescription& model, const std::string& parameter);

// Compares names, shapes and dtypes of a whole file with a whole model, in
// any order.  A second name of a parameter (ModelDescription::aliases) may be
// there beside the first or in its place; the reader of the values compares
// them.
//   reset_head  the head's tensors are not looked at, nor missed; of a text
//               classifier neither is what a published encoder has for another
//               head and lacks
// Errors:
//   InvalidArgument  counts the tensors that are missing, unknown, of another
//                    shape or of a dtype that does not convert
absl::Status CheckWeights(const ModelDescription& model,
                          const std::vector<TensorPlace>& tensors,
                          bool reset_head);

// The model's names of those tensors of a file that have others there, by the
// file's.  What wrappers put before a name ("module.", "_orig_mod.", "model.")
// is taken off.  Known are two kinds of files besides, both of Hugging Face:
//   - of a language model without what stands before its scores ("h.0.ln_1" of
//     openai-community/gpt2 for "transformer.h.0.ln_1"; "encoder..." of a bare
//     BertModel for "bert.encoder...")
//   - from TensorFlow: LayerNorm.gamma and .beta (bert-base-uncased)
// A name that the model has is never another's, nor are two names of a file one
// name of the model.
std::map<std::string, std::string> PublishedNames(
    const ModelDescription& model, const std::vector<TensorPlace>& tensors);

}  // namespace paceline
