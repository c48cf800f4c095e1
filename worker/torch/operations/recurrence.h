// The part of an LSTM that goes from one token to the next.
#pragma once

#include "ATen/ATen.h"
#include "worker/torch/operations/precision.h"

namespace paceline {

// One direction of one layer, as torch.nn.LSTM has it (gates in the order
// input, forget, cell, output), from states of 0:
//
//   gates  [tokens, samples, 4 width] float32: what the input gives them, with
//          its bias
//   weight [4 width, width], bias [4 width]: leaves of the layer
//   -> the states [tokens, samples, width] float32
//
// Its backward is written by hand: autograd would keep a dozen tensors for each
// token, and add up the weight's gradient token by token.  The gradient of
// `gates` is computed token by token from the end, as it must be; that of
// `weight` is one product over all tokens.  In the graph these are two nodes
// behind a junction, so that a split backward (split_backward.h) postpones the
// second one.
//
// Every product goes through `products`, which outlives the graph.
at::Tensor RunLstm(const at::Tensor& gates, const at::Tensor& weight,
                   const at::Tensor& bias, Products& products);

}  // namespace paceline
