// A linear map whose parameters' gradients come before that of its input.
#pragma once

#include <functional>
#include <unordered_map>

#include "ATen/ATen.h"

namespace paceline {

// Memory in which a step's sums of gradients lie.  Used on the compute thread.
struct Sums {
  // The first gradient of a leaf, as long as it has no .grad(), may be written
  // here; the tensor becomes its .grad().
  std::unordered_map<const c10::TensorImpl*, at::Tensor> of;
  // Values [begin, end) of such a sum were written.
  std::function<void(const float* begin, const float* end)> on_written;
};

// As at::linear, for a weight of two dimensions.  Autograd computes the
// gradient of the input first, and hands a weight's on when it is whole.  In
// a group the gradients of parameters have a network to cross: here they come
// first, and those that go into `sums` piece by piece, from the end.
// `sums` outlives the graph.
at::Tensor SummingLinear(const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias, const Sums& sums);

}  // namespace paceline
