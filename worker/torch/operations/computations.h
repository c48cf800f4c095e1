// Computes each kind of operation with LibTorch; and the part of an LSTM that
// goes from one token to the next.
#pragma once

#include <vector>

#include "ATen/ATen.h"
#include "core/model/description.h"
#include "worker/torch/operations/precision.h"

namespace paceline {

// The mean and the unbiased variance that one batch_norm2d saw of a
// micro-batch, by channel.  Both are undefined where there was but one value,
// which has no variance.
struct BatchStatistics {
  at::Tensor mean;      // [channels] float32
  at::Tensor variance;  // [channels] float32
};

// Those of a layer, one for each normalisation, in the order of its operations.
using LayerStatistics = std::vector<BatchStatistics>;

// An operation sees these besides its input.
struct OperationCall {
  const Operation& operation;
  const std::vector<at::Tensor>& parameters;  // and buffers, in its order
  bool training;
  at::Tensor& remembered;       // between the begin and the end of a residual
  LayerStatistics* statistics;  // of training; where null, none are wanted
  Products& products;           // all that multiplies goes through it
  // The tensors beside the activation, to be looked at or added to; null where
  // a model has none.
  std::vector<at::Tensor>* beside = nullptr;

  int64_t size(int i) const { return operation.sizes[i]; }
  const at::Tensor& parameter(int i) const { return parameters[i]; }
};

// [micro_batch, ...] -> [micro_batch, ...], as core/model/operation.h says.
using Compute = at::Tensor (*)(const OperationCall& call,
                               const at::Tensor& input);

// How `layer.operations[index]` is computed.  Throws c10::Error for an
// unknown kind.
Compute FindCompute(const Layer& layer, size_t index);

// Where among its parameters and buffers an operation has those of its
// batch_norm2d; -1 when it has none.
int NormOffset(const Operation& operation);

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
