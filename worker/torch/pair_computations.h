// What the operations of models of sentence pairs are in LibTorch; entries of
// the table in computations.cc.
#pragma once

#include "ATen/ATen.h"
#include "worker/torch/computations.h"

namespace paceline {

at::Tensor ComputeSplitPair(const OperationCall& call, const at::Tensor& x);
at::Tensor ComputeLstm(const OperationCall& call, const at::Tensor& x);
at::Tensor ComputeBidirectionalLstm(const OperationCall& call,
                                    const at::Tensor& x);
at::Tensor ComputeTakeTarget(const OperationCall& call, const at::Tensor& x);
at::Tensor ComputeAdditiveAttention(const OperationCall& call,
                                    const at::Tensor& x);
at::Tensor ComputeJoinContext(const OperationCall& call, const at::Tensor& x);
at::Tensor ComputeJoinLastContext(const OperationCall& call,
                                  const at::Tensor& x);

}  // namespace paceline
