#include "worker/torch/operations/computations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "core/model/operation.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/functions/utils.h"

namespace paceline {

namespace {

constexpr double kBatchNormEpsilon = 1e-5;

// `y`, and what the adapter adds that stands beside the map of `x` whose weight
// is the call's parameter `weight`, if there is one.
at::Tensor Adapted(const OperationCall& call, const at::Tensor& x, int weight,
                   const at::Tensor& y) {
  const std::vector<int>& beside = call.operation.adapters.beside;
  const auto found = std::find(beside.begin(), beside.end(), weight);
  if (found == beside.end()) return y;
  const size_t in = call.parameters.size() - 2 * (beside.end() - found);
  const at::Tensor low = call.products.Linear(x, call.parameters[in], {});
  return y.add(call.products.Linear(low, call.parameters[in + 1], {}),
               call.operation.adapters.scale);
}

// The linear map whose weight is the call's parameter `weight`, and whose bias
// the next one.
at::Tensor Map(const OperationCall& call, const at::Tensor& x, int weight) {
  return Adapted(call, x, weight,
                 call.products.Linear(x, call.parameter(weight),
                                      call.parameter(weight + 1)));
}

// The same values without another pass through memory.
at::Tensor ReluInPlace(const OperationCall&, const at::Tensor& x) {
  at::Tensor y = x;
  return y.relu_();
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

at::Tensor LayerNorm(const OperationCall& call, const at::Tensor& x,
                     double epsilon) {
  return at::layer_norm(AsFloat(x), {call.size(0)}, call.parameter(0),
                        call.parameter(1), epsilon);
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

at::Tensor Attention(const OperationCall& call, const at::Tensor& x) {
  const int64_t heads = call.size(1);
  const int64_t depth = call.size(2);
  const int64_t samples = x.size(0);
  const int64_t tokens = x.size(1);
  Products& products = call.products;
  const at::Tensor qkv = Map(call, x, 0)
                             .reshape({samples, tokens, 3, heads, depth})
                             .permute({2, 0, 3, 1, 4});
  const at::Tensor scores = products.Matmul(qkv[0], qkv[1].transpose(-2, -1)) *
                            (1 / std::sqrt(static_cast<double>(depth)));
  const at::Tensor mixed =
      products.Matmul(at::softmax(scores, -1, at::kFloat), qkv[2])
          .transpose(1, 2)
          .reshape({samples, tokens, heads * depth});
  return Map(call, mixed, 2);
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

// --- Language models ---

// A softmax turns this into 0, unless all of a row is that.
constexpr float kNever = std::numeric_limits<float>::lowest();

// The mask of ComputePaddingMask: [n, t] uint8.
const at::Tensor& MaskOf(const OperationCall& call) {
  TORCH_CHECK(call.beside != nullptr && call.beside->size() == 1,
              call.operation.kind, " without a mask");
  return call.beside->front();
}

// [n, t, width] -> [n, heads, t, width / heads]
at::Tensor ByHeads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads})
      .transpose(1, 2);
}

// The values, mixed by the softmax of queries times keys; all [n, heads, t, d].
// never: broadcasts to [n, heads, t, t]; true where no token may look.
at::Tensor Mix(const OperationCall& call, const at::Tensor& queries,
               const at::Tensor& keys, const at::Tensor& values,
               const at::Tensor& never) {
  const double depth = static_cast<double>(queries.size(-1));
  // In bf16 there is no room for kNever.
  const at::Tensor scores = AsFloat(
      call.products.Matmul(queries, keys.transpose(-2, -1)) / std::sqrt(depth));
  at::Tensor weights = at::softmax(scores.masked_fill(never, kNever), -1);
  if (call.operation.probability > 0) {
    weights = at::dropout(weights, call.operation.probability, call.training);
  }
  return call.products.Matmul(weights, values).transpose(1, 2).flatten(2);
}

at::Tensor ComputePaddingMask(const OperationCall& call, const at::Tensor& x) {
  TORCH_CHECK(call.beside != nullptr, "a mask that nobody takes");
  call.beside->push_back(x.ne(call.size(0)).to(at::kByte));
  return x;
}

at::Tensor ComputePaddedEmbedding(const OperationCall& call,
                                  const at::Tensor& x) {
  return at::embedding(call.parameter(0), x, /*padding_idx=*/call.size(2));
}

at::Tensor ComputeMaskedPositions(const OperationCall& call,
                                  const at::Tensor& x) {
  const int64_t padding = call.size(2);
  const at::Tensor mask = MaskOf(call).to(at::kLong);
  const at::Tensor positions = mask.cumsum(1) * mask + padding;
  return x + at::embedding(call.parameter(0), positions, padding);
}

// As Map(), with a weight [in, out].
at::Tensor MapInFirst(const OperationCall& call, const at::Tensor& x,
                      int weight) {
  return Adapted(call, x, weight,
                 call.products.Conv1d(x, call.parameter(weight),
                                      call.parameter(weight + 1)));
}

at::Tensor ComputeCausalAttention(const OperationCall& call,
                                  const at::Tensor& x) {
  const int64_t heads = call.size(1);
  const int64_t tokens = x.size(1);
  const std::vector<at::Tensor> qkv = MapInFirst(call, x, 0).chunk(3, -1);
  const at::Tensor later =
      at::ones({tokens, tokens}, at::kBool).triu(/*diagonal=*/1);
  const at::Tensor mixed =
      Mix(call, ByHeads(qkv[0], heads), ByHeads(qkv[1], heads),
          ByHeads(qkv[2], heads), later);
  return MapInFirst(call, mixed, 2);
}

at::Tensor ComputeMaskedAttention(const OperationCall& call,
                                  const at::Tensor& x) {
  const int64_t heads = call.size(1);
  const auto part = [&](int weight) {
    return ByHeads(Map(call, x, weight), heads);
  };
  // One after the other: the order of the graph is that of the sums in
  // autograd.
  const at::Tensor queries = part(0);
  const at::Tensor keys = part(2);
  const at::Tensor values = part(4);
  const at::Tensor never =
      MaskOf(call).eq(0).unsqueeze(1).unsqueeze(1);  // [n, 1, 1, t]
  return Mix(call, queries, keys, values, never);
}

// The last of what goes beside the activation, which it leaves.
at::Tensor Take(const OperationCall& call) {
  TORCH_CHECK(call.beside != nullptr && !call.beside->empty(),
              call.operation.kind, " without what goes beside");
  const at::Tensor taken = call.beside->back();
  call.beside->pop_back();
  return taken;
}

// One direction with the operation's parameters from `first` on:
// [tokens, samples, in] -> [tokens, samples, width].
at::Tensor Direction(const OperationCall& call, int first,
                     const at::Tensor& x) {
  const at::Tensor gates = AsFloat(call.products.Linear(
      x, call.parameter(first), call.parameter(first + 2)));
  return RunLstm(gates, call.parameter(first + 1), call.parameter(first + 3),
                 call.products);
}

// A sample after the other or a token after the other.
at::Tensor Swap(const at::Tensor& x) { return x.transpose(0, 1).contiguous(); }

// Where each row of [tokens, samples, ...] goes when the first tokens of a
// sample, as many as its mask [samples, tokens] has, change their order; the
// same once more puts all back.
at::Tensor ReverseOrder(const at::Tensor& mask) {
  const int64_t samples = mask.size(0);
  const int64_t tokens = mask.size(1);
  const at::Tensor lengths = mask.sum(1);  // int64
  const at::Tensor at = at::arange(tokens).unsqueeze(1);
  const at::Tensor from = at::where(at < lengths, lengths - 1 - at, at);
  return (from * samples + at::arange(samples)).flatten();
}

at::Tensor Reorder(const at::Tensor& x, const at::Tensor& order) {
  return x.flatten(0, 1).index_select(0, order).view(x.sizes());
}

at::Tensor ComputeSplitPair(const OperationCall& call, const at::Tensor& x) {
  TORCH_CHECK(call.beside != nullptr, "a pair that nobody takes");
  const int64_t block = x.size(1) / 2;
  const at::Tensor source = x.narrow(1, 0, block).contiguous();
  call.beside->push_back(source.ne(call.size(0)).to(at::kByte));
  call.beside->push_back(x.narrow(1, block, block).contiguous());
  return source;
}

at::Tensor ComputeBidirectionalLstm(const OperationCall& call,
                                    const at::Tensor& x) {
  constexpr int kParametersOfADirection = 4;
  TORCH_CHECK(call.beside != nullptr && !call.beside->empty(),
              call.operation.kind, " without a mask");
  const at::Tensor order = ReverseOrder(call.beside->front());
  const at::Tensor by_token = Swap(x);
  const at::Tensor there = Direction(call, 0, by_token);
  const at::Tensor back = Reorder(
      Direction(call, kParametersOfADirection, Reorder(by_token, order)),
      order);
  return Swap(at::cat({there, back}, -1));
}

at::Tensor ComputeTakeTarget(const OperationCall& call, const at::Tensor& x) {
  const at::Tensor target = Take(call);
  call.beside->push_back(x);
  return target;
}

// Normalised (Luong's TensorFlow tutorial and MLPerf's GNMT): a query q looks
// at a key k by scalar * v/|v| . tanh(W q + U k + bias).
at::Tensor ComputeAdditiveAttention(const OperationCall& call,
                                    const at::Tensor& x) {
  const at::Tensor memory = Take(call);
  const at::Tensor mask = Take(call);
  const at::Tensor& vector = call.parameter(2);  // [1, width]
  Products& products = call.products;
  const at::Tensor queries =
      products.Linear(x, call.parameter(0), call.parameter(4));
  const at::Tensor keys =
      products.Linear(memory, call.parameter(1), at::Tensor());
  const at::Tensor sums =
      (queries.unsqueeze(2) + keys.unsqueeze(1)).tanh_();  // [n, t, s, width]
  const at::Tensor direction = call.parameter(3) * vector / vector.norm();
  const at::Tensor scores =
      AsFloat(products.Matmul(sums, direction.t()).squeeze(-1));
  const at::Tensor weights =
      at::softmax(scores.masked_fill(mask.eq(0).unsqueeze(1), kNever), -1);
  call.beside->push_back(products.Matmul(weights, memory));
  return x;
}

using Call = const OperationCall&;
using Input = const at::Tensor&;

constexpr std::pair<const char*, Compute> kComputes[] = {
    {"flatten", [](Call, Input x) { return x.flatten(1); }},
    {"linear", [](Call c, Input x) { return Map(c, x, 0); }},
    {"relu", [](Call, Input x) { return at::relu(x); }},
    {"gelu", [](Call, Input x) { return at::gelu(x); }},
    {"conv2d", Conv2d},
    {"conv2d_no_bias", Conv2d},
    {"batch_norm2d", [](Call c, Input x) { return Normalize(c, 0, x); }},
    {"max_pool2d", MaxPool2d},
    {"adaptive_avg_pool2d", AdaptiveAvgPool2d},
    {"dropout", Dropout},
    {"layer_norm", [](Call c, Input x) { return LayerNorm(c, x, 1e-6); }},
    {"layer_norm_e5", [](Call c, Input x) { return LayerNorm(c, x, 1e-5); }},
    {"layer_norm_e12", [](Call c, Input x) { return LayerNorm(c, x, 1e-12); }},
    {"tanh", [](Call, Input x) { return at::tanh(x); }},
    {"gelu_new", [](Call, Input x) { return at::gelu(x, "tanh"); }},
    {"padding_mask", ComputePaddingMask},
    {"token_embedding",
     [](Call c, Input x) { return at::embedding(c.parameter(0), x); }},
    {"padded_embedding", ComputePaddedEmbedding},
    {"learned_positions",
     [](Call c, Input x) {
       return x + c.parameter(0).narrow(0, 0, x.size(1));
     }},
    {"masked_positions", ComputeMaskedPositions},
    {"first_type",
     [](Call c, Input x) { return x + c.parameter(0).select(0, 0); }},
    {"conv1d", [](Call c, Input x) { return MapInFirst(c, x, 0); }},
    {"causal_attention", ComputeCausalAttention},
    {"masked_attention", ComputeMaskedAttention},
    {"tied_linear",
     [](Call c, Input x) { return c.products.Linear(x, c.parameter(0), {}); }},
    {"split_pair", ComputeSplitPair},
    {"lstm", [](Call c, Input x) { return Swap(Direction(c, 0, Swap(x))); }},
    {"bidirectional_lstm", ComputeBidirectionalLstm},
    {"take_target", ComputeTakeTarget},
    {"additive_attention", ComputeAdditiveAttention},
    {"join_context",
     [](Call c, Input x) {
       return at::cat({x, c.beside->back()}, -1);
     }},
    {"join_last_context",
     [](Call c, Input x) {
       return at::cat({x, Take(c)}, -1);
     }},
    {"score_tokens", [](Call c, Input x) { return Map(c, x, 0); }},
    {"patch_embedding", PatchEmbedding},
    {"class_token", ClassToken},
    {"position_embedding", [](Call c, Input x) { return x + c.parameter(0); }},
    {"attention", Attention},
    {"multihead_attention", Attention},
    {"residual_begin", ResidualBegin},
    {"residual_project", ResidualProject},
    {"residual_end",
     [](Call c, Input x) { return std::exchange(c.remembered, {}) + x; }},
    {"take_token", [](Call c, Input x) { return x.select(1, c.size(0)); }},
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

namespace {

using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

// All tokens leave these behind.
struct LstmTrace {
  at::Tensor gates;    // [tokens, samples, 4 width], after their functions
  at::Tensor states;   // [1 + tokens, samples, width], 0 first
  at::Tensor cells;    // [1 + tokens, samples, width], 0 first
  at::Tensor bounded;  // [tokens, samples, width]: tanh of the cells
};

LstmTrace Run(const at::Tensor& gates, const at::Tensor& weight,
              const at::Tensor& bias, Products& products) {
  const int64_t tokens = gates.size(0);
  const int64_t samples = gates.size(1);
  const int64_t width = weight.size(1);
  LstmTrace trace{at::empty_like(gates),
                  at::empty({1 + tokens, samples, width}),
                  at::empty({1 + tokens, samples, width}),
                  at::empty({tokens, samples, width})};
  trace.states[0].zero_();
  trace.cells[0].zero_();
  for (int64_t t = 0; t < tokens; ++t) {
    at::Tensor all = trace.gates[t];
    at::add_out(all, gates[t],
                AsFloat(products.Linear(trace.states[t], weight, bias)));
    at::Tensor input_and_forget = all.narrow(1, 0, 2 * width).sigmoid_();
    const at::Tensor candidate = all.narrow(1, 2 * width, width).tanh_();
    const at::Tensor output = all.narrow(1, 3 * width, width).sigmoid_();
    at::Tensor cell = trace.cells[t + 1];
    at::mul_out(cell, input_and_forget.narrow(1, width, width), trace.cells[t]);
    cell.addcmul_(input_and_forget.narrow(1, 0, width), candidate);
    at::Tensor bounded = trace.bounded[t];
    at::tanh_out(bounded, cell);
    at::Tensor state = trace.states[t + 1];
    at::mul_out(state, output, bounded);
  }
  return trace;
}

// One sample and token: from the gradients of its state and of its cell to
// those of its gates, before their functions, and of the cell before.
void StepBack(int64_t width, const float* gates, const float* cell_before,
              const float* bounded, const float* of_state, float* of_cell,
              float* of_gates) {
  for (int64_t j = 0; j < width; ++j) {
    const float input = gates[j];
    const float forget = gates[width + j];
    const float candidate = gates[2 * width + j];
    const float output = gates[3 * width + j];
    const float cell =
        of_cell[j] + of_state[j] * output * (1 - bounded[j] * bounded[j]);
    of_gates[j] = cell * candidate * input * (1 - input);
    of_gates[width + j] = cell * cell_before[j] * forget * (1 - forget);
    of_gates[2 * width + j] = cell * input * (1 - candidate * candidate);
    of_gates[3 * width + j] = of_state[j] * bounded[j] * output * (1 - output);
    of_cell[j] = cell * forget;
  }
}

// From the gradient of the states to that of the gates before their functions.
class ThroughTime final : public Node {
 public:
  // weight: as a product takes it.
  ThroughTime(LstmTrace trace, at::Tensor weight, Products& products)
      : trace_(std::move(trace)),
        weight_(std::move(weight)),
        products_(products) {}

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    TORCH_CHECK(trace_.gates.defined(), "an LSTM's second backward");
    const at::Tensor& gates = trace_.gates;
    const at::Tensor of_states = gradients[0].contiguous();
    const int64_t samples = gates.size(1);
    const int64_t width = of_states.size(2);
    at::Tensor of_gates = at::empty_like(gates);
    at::Tensor of_cell = at::zeros({samples, width});
    at::Tensor from_later;
    for (int64_t t = gates.size(0) - 1; t >= 0; --t) {
      const at::Tensor of_state =
          from_later.defined() ? of_states[t] + from_later : of_states[t];
      const at::Tensor row = of_gates[t];
      for (int64_t n = 0; n < samples; ++n) {
        const int64_t at = n * width;
        StepBack(width, gates[t].data_ptr<float>() + 4 * at,
                 trace_.cells[t].data_ptr<float>() + at,
                 trace_.bounded[t].data_ptr<float>() + at,
                 of_state.data_ptr<float>() + at,
                 of_cell.data_ptr<float>() + at,
                 row.data_ptr<float>() + 4 * at);
      }
      if (t > 0) from_later = AsFloat(products_.MatmulCast(row, weight_));
    }
    return {of_gates};
  }

  void release_variables() override {
    trace_ = {};
    weight_.reset();
  }

 private:
  LstmTrace trace_;
  at::Tensor weight_;
  Products& products_;
};

// The gates' gradient is that of each of its two summands.
class Junction final : public Node {
 public:
  variable_list apply(variable_list&& gradients) override {
    return {gradients[0], gradients[0]};
  }
};

// From the gradient of all gates to those of weight and bias.
class OfWeights final : public Node {
 public:
  // states: [tokens, samples, width], those that the weight was multiplied
  // with.
  OfWeights(at::Tensor states, Products& products)
      : states_(std::move(states)), products_(products) {}

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor()};
    const at::Tensor of_gates = gradients[0].flatten(0, 1);
    return {AsFloat(products_.Matmul(of_gates.t(), states_.flatten(0, 1))),
            of_gates.sum(0)};
  }

  void release_variables() override { states_.reset(); }

 private:
  at::Tensor states_;
  Products& products_;
};

template <typename T, typename... Args>
std::shared_ptr<Node> MakeNode(edge_list next, const at::Tensor& output,
                               Args&&... args) {
  const std::shared_ptr<Node> node(new T(std::forward<Args>(args)...),
                                   torch::autograd::deleteNode);
  node->set_next_edges(std::move(next));
  node->add_input_metadata(output);
  return node;
}

}  // namespace

at::Tensor RunLstm(const at::Tensor& gates, const at::Tensor& weight,
                   const at::Tensor& bias, Products& products) {
  LstmTrace trace;
  at::Tensor states;
  {
    const at::NoGradGuard no_graph;
    trace = Run(gates.contiguous(), weight, bias, products);
    states = trace.states.slice(0, 1).detach();
  }
  if (!torch::autograd::compute_requires_grad(gates, weight, bias)) {
    return states;
  }
  const std::shared_ptr<Node> of_weights = MakeNode<OfWeights>(
      torch::autograd::collect_next_edges(weight, bias), gates,
      trace.states.slice(0, 0, gates.size(0)), products);
  edge_list summands = torch::autograd::collect_next_edges(gates);
  summands.emplace_back(of_weights, 0);
  const std::shared_ptr<Node> junction =
      MakeNode<Junction>(std::move(summands), gates);
  const at::Tensor cast = products.Cast(weight).detach();
  const std::shared_ptr<Node> node = MakeNode<ThroughTime>(
      edge_list{{junction, 0}}, states, std::move(trace), cast, products);
  torch::autograd::impl::set_gradient_edge(states, {node, 0});
  return states;
}

}  // namespace paceline
