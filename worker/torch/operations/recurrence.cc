#include "worker/torch/operations/recurrence.h"

#include <memory>
#include <utility>

#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/functions/utils.h"
#include "torch/torch.h"

namespace paceline {
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
