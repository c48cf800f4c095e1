// The names that published weights have for a model's tensors.  Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/model/description.h"
#include "core/model/safetensors_layout.h"

namespace paceline {

// The model's names of those tensors of a file that have others there, by the
// file's.  Known are two kinds of files, both of Hugging Face:
//   - of a language model without what stands before its scores ("h.0.ln_1" of
//     openai-community/gpt2 for "transformer.h.0.ln_1"; "encoder..." of a bare
//     BertModel for "bert.encoder...")
//   - from TensorFlow: LayerNorm.gamma and .beta (bert-base-uncased)
// A name that the model has is never another's, nor are two names of a file one
// name of the model.
std::map<std::string, std::string> PublishedNames(
    const ModelDescription& model, const std::vector<TensorPlace>& tensors);

// Whether `parameter` is a text classifier's that lies between its encoder and
// its class scores: published encoders do not have it, fine-tuned models do.
bool IsBehindEncoder(const ModelDescription& model,
                     const std::string& parameter);

// Whether a tensor that a text classifier has no parameter for belongs to what
// an encoder is trained for first: to guess words and the order of sentences.
bool IsOfAnotherHead(const ModelDescription& model, const std::string& tensor);

}  // namespace paceline
