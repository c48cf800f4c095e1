// Between our tensors and LibTorch's without a copy: both ways the memory is
// shared and lives as long as either side needs it.  Thread-safe.
#pragma once

#include <vector>

#include "ATen/ATen.h"
#include "core/base/tensor.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

// kUnspecified throws.
at::ScalarType ToTorch(DType dtype);

// kUnspecified for types that we do not have.
DType FromTorch(at::ScalarType type);

// Views `tensor`.  Writing through the result is for its owner alone.
at::Tensor ToTorch(const Tensor& tensor);

// Views `tensor`, which must be contiguous and float32 or int64.
Tensor FromTorch(const at::Tensor& tensor);

// The tensors beside the activation in a stage's input.
std::vector<at::Tensor> BesideOf(const TensorList& input);

// The tensors that cross to the next stage: `x` [n, ...output] float32,
// `beside`, and the labels as they came.
TensorList OutputOf(const at::Tensor& x, const std::vector<at::Tensor>& beside,
                    const Tensor& labels);

// Cross-entropy, summed over the labels that are some.
//   logits  [n, ...label_shape, classes] float32, contiguous
//   labels  [n, ...label_shape] int64, classes or kNoLabel
at::Tensor LossOf(const at::Tensor& logits, const Tensor& labels);

// Mixes `loss`, LossOf() these, with the distance to what a teacher says
// (Hinton et al. 2015, section 2): share * t^2 * KL(teacher / t || logits / t).
at::Tensor DistilledLossOf(const at::Tensor& loss, const at::Tensor& logits,
                           const at::Tensor& teacher, const Tensor& labels,
                           const DistillSpec& distill);

// The same as numbers.  The first of equal scores wins, as argmax does.
//   loss  LossOf() the others
LossSums SumsOf(const at::Tensor& loss, const at::Tensor& logits,
                const Tensor& labels);

}  // namespace paceline
