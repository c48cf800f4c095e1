#include "worker/torch/computations.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/model/operation.h"
#include "torch/torch.h"
#include "worker/torch/token_computations.h"

namespace paceline {
namespace {

constexpr double kBatchNormEpsilon = 1e-5;

at::Tensor Flatten(const OperationCall&, const at::Tensor& x) {
  return x.flatten(1);
}

at::Tensor Linear(const OperationCall& call, const at::Tensor& x) {
  return call.products.Linear(x, call.parameter(0), call.parameter(1));
}

at::Tensor Relu(const OperationCall&, const at::Tensor& x) {
  return at::relu(x);
}

// The same values without another pass through memory.
at::Tensor ReluInPlace(const OperationCall&, const at::Tensor& x) {
  at::Tensor y = x;
  return y.relu_();
}

at::Tensor Gelu(const OperationCall&, const at::Tensor& x) {
  return at::gelu(x);
}

at::Tensor Conv2d(const OperationCall& call, const at::Tensor& x) {
  const int64_t stride = call.size(3);
  const int64_t padding = call.size(4);
  const at::Tensor bias =
      call.parameters.size() > 1 ? call.parameter(1) : at::Tensor();
  return call.products.Conv2d(x, call.parameter(0), bias, {stride, stride},
                              {padding, padding});
}

// `first`: where among the call's parameters those of the normalisation begin.
//
// In training LibTorch is given fresh running statistics and a momentum of 1,
// so that what it leaves there is the micro-batch's own.  They are folded into
// the model's when the step is committed, not here.
at::Tensor Normalize(const OperationCall& call, int first,
                     const at::Tensor& input) {
  const at::Tensor x = AsFloat(input);
  const at::Tensor& weight = call.parameter(first);
  const at::Tensor& bias = call.parameter(first + 1);
  if (!call.training) {
    return at::batch_norm(x, weight, bias, call.parameter(first + 2),
                          call.parameter(first + 3), /*training=*/false,
                          /*momentum=*/0, kBatchNormEpsilon,
                          /*cudnn_enabled=*/false);
  }
  const at::Tensor mean = at::zeros({x.size(1)});
  const at::Tensor variance = at::zeros({x.size(1)});
  at::Tensor output = at::batch_norm(
      x, weight, bias, mean, variance, /*training=*/true,
      /*momentum=*/1, kBatchNormEpsilon, /*cudnn_enabled=*/false);
  if (call.statistics != nullptr) {
    const bool has_variance = x.numel() > x.size(1);
    call.statistics->push_back(has_variance ? BatchStatistics{mean, variance}
                                            : BatchStatistics{});
  }
  return output;
}

at::Tensor BatchNorm2d(const OperationCall& call, const at::Tensor& x) {
  return Normalize(call, 0, x);
}

at::Tensor MaxPool2d(const OperationCall& call, const at::Tensor& x) {
  return at::max_pool2d(x, {call.size(0), call.size(0)},
                        {call.size(1), call.size(1)},
                        {call.size(2), call.size(2)});
}

at::Tensor AdaptiveAvgPool2d(const OperationCall& call, const at::Tensor& x) {
  return at::adaptive_avg_pool2d(x, {call.size(0), call.size(0)});
}

at::Tensor Dropout(const OperationCall& call, const at::Tensor& x) {
  return at::dropout(x, call.operation.probability, call.training);
}

template <int kDigits>
at::Tensor LayerNorm(const OperationCall& call, const at::Tensor& x) {
  constexpr double kEpsilon = kDigits == 5 ? 1e-5 : kDigits == 6 ? 1e-6 : 1e-12;
  return at::layer_norm(AsFloat(x), {call.size(0)}, call.parameter(0),
                        call.parameter(1), kEpsilon);
}

at::Tensor Tanh(const OperationCall&, const at::Tensor& x) {
  return at::tanh(x);
}

// Patches do not overlap, so that the convolution is one product of matrices:
// a third faster, and what comes out is in order already.
at::Tensor PatchEmbedding(const OperationCall& call, const at::Tensor& x) {
  const int64_t patch = call.size(2);
  const int64_t samples = x.size(0);
  const int64_t channels = x.size(1);
  const int64_t rows = x.size(2) / patch;
  const int64_t columns = x.size(3) / patch;
  const at::Tensor patches =
      x.reshape({samples, channels, rows, patch, columns, patch})
          .permute({0, 2, 4, 1, 3, 5})
          .reshape({samples, rows * columns, channels * patch * patch});
  return call.products.Linear(patches, call.parameter(0), call.parameter(1));
}

at::Tensor ClassToken(const OperationCall& call, const at::Tensor& x) {
  return at::cat({call.parameter(0).expand({x.size(0), -1, -1}), x}, 1);
}

at::Tensor PositionEmbedding(const OperationCall& call, const at::Tensor& x) {
  return x + call.parameter(0);
}

at::Tensor Attention(const OperationCall& call, const at::Tensor& x) {
  const int64_t width = call.size(0);
  const int64_t heads = call.size(1);
  const int64_t depth = width / heads;
  const int64_t samples = x.size(0);
  const int64_t tokens = x.size(1);
  Products& products = call.products;
  const at::Tensor qkv =
      products.Linear(x, call.parameter(0), call.parameter(1))
          .reshape({samples, tokens, 3, heads, depth})
          .permute({2, 0, 3, 1, 4});
  const at::Tensor scores = products.Matmul(qkv[0], qkv[1].transpose(-2, -1)) *
                            (1 / std::sqrt(static_cast<double>(depth)));
  const at::Tensor mixed =
      products.Matmul(at::softmax(scores, -1, at::kFloat), qkv[2])
          .transpose(1, 2)
          .reshape({samples, tokens, width});
  return products.Linear(mixed, call.parameter(2), call.parameter(3));
}

at::Tensor ResidualBegin(const OperationCall& call, const at::Tensor& x) {
  call.remembered = x;
  return x;
}

at::Tensor ResidualProject(const OperationCall& call, const at::Tensor& x) {
  const int64_t stride = call.size(2);
  call.remembered = Normalize(
      call, 1,
      call.products.Conv2d(x, call.parameter(0), {}, {stride, stride}, {0, 0}));
  return x;
}

at::Tensor ResidualEnd(const OperationCall& call, const at::Tensor& x) {
  return std::exchange(call.remembered, at::Tensor()) + x;
}

at::Tensor TakeToken(const OperationCall& call, const at::Tensor& x) {
  return x.select(1, call.size(0));
}

constexpr std::pair<const char*, Compute> kComputes[] = {
    {"flatten", Flatten},
    {"linear", Linear},
    {"relu", Relu},
    {"gelu", Gelu},
    {"conv2d", Conv2d},
    {"conv2d_no_bias", Conv2d},
    {"batch_norm2d", BatchNorm2d},
    {"max_pool2d", MaxPool2d},
    {"adaptive_avg_pool2d", AdaptiveAvgPool2d},
    {"dropout", Dropout},
    {"layer_norm", LayerNorm<6>},
    {"layer_norm_e5", LayerNorm<5>},
    {"layer_norm_e12", LayerNorm<12>},
    {"tanh", Tanh},
    {"gelu_new", ComputeGeluNew},
    {"padding_mask", ComputePaddingMask},
    {"token_embedding", ComputeTokenEmbedding},
    {"padded_embedding", ComputePaddedEmbedding},
    {"learned_positions", ComputeLearnedPositions},
    {"masked_positions", ComputeMaskedPositions},
    {"first_type", ComputeFirstType},
    {"conv1d", ComputeConv1d},
    {"causal_attention", ComputeCausalAttention},
    {"masked_attention", ComputeMaskedAttention},
    {"tied_linear", ComputeTiedLinear},
    {"split_pair", ComputeSplitPair},
    {"lstm", ComputeLstm},
    {"bidirectional_lstm", ComputeBidirectionalLstm},
    {"take_target", ComputeTakeTarget},
    {"additive_attention", ComputeAdditiveAttention},
    {"join_context", ComputeJoinContext},
    {"join_last_context", ComputeJoinLastContext},
    {"score_tokens", Linear},
    {"patch_embedding", PatchEmbedding},
    {"class_token", ClassToken},
    {"position_embedding", PositionEmbedding},
    {"attention", Attention},
    {"multihead_attention", Attention},
    {"residual_begin", ResidualBegin},
    {"residual_project", ResidualProject},
    {"residual_end", ResidualEnd},
    {"take_token", TakeToken},
};

}  // namespace

Compute FindCompute(const Layer& layer, size_t index) {
  const Operation& operation = layer.operations[index];
  if (index > 0 && IsInPlace(operation, layer.operations[index - 1])) {
    return ReluInPlace;
  }
  for (const auto& [name, compute] : kComputes) {
    if (operation.kind == name) return compute;
  }
  C10_THROW_ERROR(ValueError,
                  absl::StrCat(layer.name, ": operation '", operation.kind,
                               "' is not implemented"));
}

int NormOffset(const Operation& operation) {
  if (operation.kind == "batch_norm2d") return 0;
  return operation.kind == "residual_project" ? 1 : -1;
}

}  // namespace paceline
