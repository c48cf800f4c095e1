#include "worker/torch/split_backward.h"

#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ATen/ATen.h"
#include "absl/algorithm/container.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/csrc/autograd/engine.h"

namespace paceline {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Keeps the gradients that come to a node.
class Recorder final : public torch::autograd::FunctionPreHook {
 public:
  // `into` is shared with the caller, which reads it after the backward.
  explicit Recorder(std::shared_ptr<variable_list> into)
      : into_(std::move(into)) {}

  variable_list operator()(const variable_list& gradients) override {
    *into_ = gradients;
    return gradients;
  }

 private:
  const std::shared_ptr<variable_list> into_;
};

// The graph of one layer, seen from its outputs.
class LayerGraph {
 public:
  explicit LayerGraph(const std::vector<at::Tensor>& inputs) {
    for (const at::Tensor& input : inputs) {
      if (!input.requires_grad()) continue;
      leaves_.push_back(torch::autograd::impl::grad_accumulator(input));
      inputs_.insert(leaves_.back().get());
    }
  }

  // Whether a way leads from `root` to an input.
  bool Add(const at::Tensor& root) { return Visit(root.grad_fn().get()); }

  bool is_input(const Node* node) const { return inputs_.count(node) > 0; }
  bool reaches_input(const Node* node) const { return reaches_.at(node); }
  // In the order in which they were found.
  const std::vector<Node*>& nodes() const { return nodes_; }

  // The accumulators of all parameters that can be reached over `node`, which
  // does not reach the input, on behalf of `junction`.  False when another
  // junction reaches one of the nodes too.
  bool AddParameters(Node* node, const Node* junction, edge_list* parameters) {
    const auto [owner, is_new] = owners_.emplace(node, junction);
    if (!is_new) return owner->second == junction;
    bool leaf = true;
    for (const Edge& next : node->next_edges()) {
      if (!next.is_valid()) continue;
      leaf = false;
      if (!AddParameters(next.function.get(), junction, parameters)) {
        return false;
      }
    }
    if (leaf) parameters->emplace_back(node->shared_from_this(), 0);
    return true;
  }

 private:
  // A layer is a few dozen operations: the recursion is not deep.
  bool Visit(Node* node) {
    const auto known = reaches_.find(node);
    if (known != reaches_.end()) return known->second;
    bool reaches = is_input(node);
    for (const Edge& next : node->next_edges()) {
      if (next.is_valid()) reaches |= Visit(next.function.get());
    }
    reaches_.emplace(node, reaches);
    nodes_.push_back(node);
    return reaches;
  }

  std::vector<std::shared_ptr<Node>> leaves_;
  std::unordered_set<const Node*> inputs_;
  std::unordered_map<const Node*, bool> reaches_;
  std::unordered_map<const Node*, const Node*> owners_;
  std::vector<Node*> nodes_;
};

struct Recording {
  Node* node = nullptr;
  edge_list parameters;
  std::shared_ptr<variable_list> gradients;
};

// The junctions.  Nothing when a way to a parameter begins at two of them, or
// at one and at an output that leads to no input (`others`).
std::optional<std::vector<Recording>> FindJunctions(
    LayerGraph& graph, const std::vector<at::Tensor>& others) {
  edge_list of_others;
  for (const at::Tensor& output : others) {
    if (!graph.AddParameters(output.grad_fn().get(), nullptr, &of_others)) {
      return std::nullopt;
    }
  }
  std::vector<Recording> recordings;
  for (Node* node : graph.nodes()) {
    if (!graph.reaches_input(node)) continue;
    Recording recording{node, {}, nullptr};
    for (const Edge& next : node->next_edges()) {
      if (!next.is_valid() || graph.reaches_input(next.function.get())) {
        continue;
      }
      if (!graph.AddParameters(next.function.get(), node,
                               &recording.parameters)) {
        return std::nullopt;
      }
    }
    if (!recording.parameters.empty()) recordings.push_back(recording);
  }
  return recordings;
}

WeightHalf::Junction ToJunction(Recording recording) {
  WeightHalf::Junction junction;
  junction.parameters = std::move(recording.parameters);
  for (size_t i = 0; i < recording.gradients->size(); ++i) {
    at::Tensor& gradient = (*recording.gradients)[i];
    if (!gradient.defined()) continue;
    junction.inputs.emplace_back(recording.node->shared_from_this(), i);
    junction.gradients.push_back(std::move(gradient));
  }
  return junction;
}

// Outputs that autograd knows how to go back from, and their gradients.
struct Roots {
  std::vector<at::Tensor> outputs;
  Gradients gradients;

  void Add(const at::Tensor& output, const at::Tensor& gradient) {
    outputs.push_back(output);
    gradients.push_back(gradient);
  }
};

bool IsInput(const Trace& trace, const at::Tensor& output) {
  return absl::c_any_of(trace.inputs, [&](const at::Tensor& input) {
    return output.is_same(input);
  });
}

// All but inputs that came out as they went in.
Roots RootsOf(const Trace& trace, const Gradients& gradients) {
  Roots roots;
  for (size_t i = 0; i < trace.outputs.size(); ++i) {
    const at::Tensor& output = trace.outputs[i];
    if (output.requires_grad() && !IsInput(trace, output)) {
      roots.Add(output, gradients[i]);
    }
  }
  return roots;
}

// Adds the gradients of those inputs to `sums`, the inputs' by autograd.
void AddHandedOn(const Trace& trace, const Gradients& gradients,
                 Gradients& sums) {
  for (size_t i = 0; i < trace.outputs.size(); ++i) {
    for (size_t j = 0; j < trace.inputs.size(); ++j) {
      const at::Tensor& input = trace.inputs[j];
      if (!input.requires_grad() || !trace.outputs[i].is_same(input)) continue;
      sums[j] = sums[j].defined() ? sums[j] + gradients[i] : gradients[i];
    }
  }
}

// The gradients of the inputs, from roots that lead to one; their junctions'
// gradients stay in `rest`.
Gradients HalfOf(const Trace& trace, const LayerGraph& graph,
                 const Roots& roots, std::vector<Recording> recordings,
                 WeightHalf* rest) {
  for (Recording& recording : recordings) {
    recording.gradients = std::make_shared<variable_list>();
    recording.node->add_pre_hook(
        std::make_unique<Recorder>(recording.gradients));
  }
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : trace.inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  const variable_list found = torch::autograd::grad(
      roots.outputs, leaves, roots.gradients, /*retain_graph=*/true,
      /*create_graph=*/false, /*allow_unused=*/true);
  for (Node* node : graph.nodes()) {
    if (!graph.reaches_input(node) || graph.is_input(node)) continue;
    if (node->pre_hooks().empty()) {
      node->release_variables();
    } else {
      node->pre_hooks().clear();
    }
  }
  for (Recording& recording : recordings) {
    rest->junctions.push_back(ToJunction(std::move(recording)));
  }
  Gradients gradients;
  size_t next = 0;
  for (const at::Tensor& input : trace.inputs) {
    gradients.push_back(input.requires_grad() ? found[next++] : at::Tensor());
  }
  return gradients;
}

}  // namespace

bool Trace::needs_backward() const {
  return absl::c_any_of(
      outputs, [](const at::Tensor& output) { return output.requires_grad(); });
}

Gradients WholeBackward(const Trace& trace, const Gradients& gradients) {
  const Roots roots = RootsOf(trace, gradients);
  if (!roots.outputs.empty()) {
    torch::autograd::backward(roots.outputs, roots.gradients);
  }
  Gradients sums;
  for (const at::Tensor& input : trace.inputs) sums.push_back(input.grad());
  AddHandedOn(trace, gradients, sums);
  return sums;
}

Gradients BackwardInput(const Trace& trace, const Gradients& gradients,
                        WeightHalf* rest) {
  const Roots all = RootsOf(trace, gradients);
  LayerGraph graph(trace.inputs);
  Roots roots;
  for (size_t i = 0; i < all.outputs.size(); ++i) {
    if (graph.Add(all.outputs[i])) {
      roots.Add(all.outputs[i], all.gradients[i]);
    } else {
      rest->outputs.push_back(all.outputs[i]);
      rest->gradients.push_back(all.gradients[i]);
    }
  }
  auto junctions = FindJunctions(graph, rest->outputs);
  if (!junctions.has_value()) {
    *rest = {};
    return WholeBackward(trace, gradients);
  }
  Gradients sums(trace.inputs.size());
  if (!roots.outputs.empty()) {
    sums = HalfOf(trace, graph, roots, *std::move(junctions), rest);
  }
  AddHandedOn(trace, gradients, sums);
  return sums;
}

void BackwardWeight(WeightHalf rest) {
  if (!rest.outputs.empty()) {
    torch::autograd::backward(rest.outputs, rest.gradients);
  }
  for (const WeightHalf::Junction& junction : rest.junctions) {
    if (junction.inputs.empty()) continue;
    torch::autograd::Engine::get_default_engine().execute(
        junction.inputs, junction.gradients, /*keep_graph=*/false,
        /*create_graph=*/false, /*accumulate_grad=*/true, junction.parameters);
  }
}

}  // namespace paceline
