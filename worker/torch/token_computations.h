// What the operations of language models are in LibTorch; entries of the table
// in computations.cc.
#pragma once

#include "ATen/ATen.h"
#include "worker/torch/computations.h"

namespace paceline {

at::Tensor ComputePaddingMask(const OperationCall& call, const at::Tensor& x);
at::Tensor ComputeTokenEmbedding(const OperationCall& call,
                                 const at::Tensor& x);
at::Tensor ComputePaddedEmbedding(const OperationCall& call,
                                  const at::Tensor& x);
at::Tensor ComputeLearnedPositions(const OperationCall& call,
                                   const at::Tensor& x);
at::Tensor ComputeMaskedPositions(const OperationCall& call,
                                  const at::Tensor& x);
at::Tensor ComputeFirstType(const OperationCall& call, const at::Tensor& x);
at::Tensor ComputeConv1d(const OperationCall& call, const at::Tensor& x);
at::Tensor ComputeCausalAttention(const OperationCall& call,
                                  const at::Tensor& x);
at::Tensor ComputeMaskedAttention(const OperationCall& call,
                                  const at::Tensor& x);
at::Tensor ComputeTiedLinear(const OperationCall& call, const at::Tensor& x);
at::Tensor ComputeGeluNew(const OperationCall& call, const at::Tensor& x);

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
