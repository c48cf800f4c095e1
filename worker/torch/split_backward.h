// The backward of one layer in two halves: the gradient of its input first, the
// gradients of its parameters later.
#pragma once

#include <memory>
#include <vector>

#include "ATen/ATen.h"
#include "torch/csrc/autograd/edge.h"

namespace paceline {

// What the second half of a layer's backward needs.  Holds the layer's graph.
struct WeightHalf {
  // A node at which the way to the input and the ways to some parameters part,
  // with the gradients that the first half brought to it.
  struct Junction {
    std::vector<torch::autograd::Edge> inputs;  // of the node
    std::vector<at::Tensor> gradients;          // [inputs]
    std::vector<torch::autograd::Edge> parameters;
  };
  std::vector<Junction> junctions;

  // Where the input needs no gradient there is no first half: all of it.
  at::Tensor output;
  at::Tensor gradient;
};

// The gradient of `input`, a leaf of the graph of `output`, which came from
// `gradient` of the output's shape; undefined when the input needs none.  Lets
// go of what only this half needed.
//
// Each half computes what autograd would compute for it in a whole backward,
// once and with the same kernels, so that the sums of both get the same bytes:
// the gradients that reach a junction are kept, not computed again.
at::Tensor BackwardInput(const at::Tensor& output, const at::Tensor& input,
                         const at::Tensor& gradient, WeightHalf* rest);

// Adds the gradients of the parameters to their .grad().
void BackwardWeight(WeightHalf rest);

}  // namespace paceline
