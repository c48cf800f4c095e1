// The backward of one layer, whole or in two halves: the gradients of its input
// first, the gradients of its parameters later.
#pragma once

#include <vector>

#include "ATen/ATen.h"
#include "torch/csrc/autograd/edge.h"

namespace paceline {

// One gradient for each float tensor that a layer takes or gives: first the
// activation's, then those of the tensors beside it.
using Gradients = std::vector<at::Tensor>;

// One layer's part of one micro-batch.
struct Trace {
  std::vector<at::Tensor> inputs;   // leaves
  std::vector<at::Tensor> outputs;  // what autograd hangs from, or an input

  // Whether any gradient of the outputs leads somewhere.
  bool needs_backward() const;
};

// The second half of a layer's backward needs this.  Holds the layer's graph.
struct WeightHalf {
  // A node at which the way to the input and the ways to some parameters part,
  // with the gradients that the first half brought to it.
  struct Junction {
    std::vector<torch::autograd::Edge> inputs;  // of the node
    std::vector<at::Tensor> gradients;          // [inputs]
    std::vector<torch::autograd::Edge> parameters;
  };
  std::vector<Junction> junctions;

  // Those that lead to no input have no first half: all of it.
  std::vector<at::Tensor> outputs;
  Gradients gradients;  // [outputs]
};

// Adds the gradients of the parameters to their .grad(), and returns those of
// the inputs, each undefined when it needs none or none came to it.  What goes
// through a layer as it is has its gradient handed on without autograd.
//   gradients  [outputs]; undefined only where an output needs none
Gradients WholeBackward(const Trace& trace, const Gradients& gradients);

// The first half of it: the gradients of the inputs.  Lets go of what only this
// half needed.
//
// Each half computes what autograd would compute for it in a whole backward,
// once and with the same kernels, so that the sums of both get the same bytes:
// the gradients that reach a junction are kept, not computed again.  Where a
// layer comes to a parameter from several junctions, a whole backward adds what
// they bring before it adds that to the sum: such a layer has all of its
// backward here, and `rest` stays empty.
Gradients BackwardInput(const Trace& trace, const Gradients& gradients,
                        WeightHalf* rest);

// Adds the gradients of the parameters to their .grad().
void BackwardWeight(WeightHalf rest);

}  // namespace paceline
