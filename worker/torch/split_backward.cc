#include "worker/torch/split_backward.h"

#include <unordered_map>
#include <utility>

#include "torch/csrc/autograd/engine.h"
#include "torch/torch.h"

namespace paceline {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Keeps the gradients that come to a node.
class Recorder final : public torch::autograd::FunctionPreHook {
 public:
  // `into` is shared with whoever reads it after the backward.
  explicit Recorder(std::shared_ptr<variable_list> into)
      : into_(std::move(into)) {}

  variable_list operator()(const variable_list& gradients) override {
    *into_ = gradients;
    return gradients;
  }

 private:
  const std::shared_ptr<variable_list> into_;
};

// The graph of one layer, seen from its output.
class LayerGraph {
 public:
  LayerGraph(Node* root, const Node* input) : input_(input) { Visit(root); }

  bool reaches_input(const Node* node) const { return reaches_.at(node); }
  // In the order in which they were found.
  const std::vector<Node*>& nodes() const { return nodes_; }

  // The accumulators of all parameters that can be reached over `node`, which
  // does not reach the input.
  void AddParameters(Node* node, edge_list* parameters) const {
    bool leaf = true;
    for (const Edge& next : node->next_edges()) {
      if (!next.is_valid()) continue;
      leaf = false;
      AddParameters(next.function.get(), parameters);
    }
    if (leaf) parameters->emplace_back(node->shared_from_this(), 0);
  }

 private:
  // A layer is a few dozen operations: the recursion is not deep.
  bool Visit(Node* node) {
    const auto known = reaches_.find(node);
    if (known != reaches_.end()) return known->second;
    bool reaches = node == input_;
    for (const Edge& next : node->next_edges()) {
      if (next.is_valid()) reaches |= Visit(next.function.get());
    }
    reaches_.emplace(node, reaches);
    nodes_.push_back(node);
    return reaches;
  }

  const Node* const input_;
  std::unordered_map<const Node*, bool> reaches_;
  std::vector<Node*> nodes_;
};

struct Recording {
  Node* node = nullptr;
  edge_list parameters;
  std::shared_ptr<variable_list> gradients;
};

// Finds the junctions and has each of them keep what comes to it.
std::vector<Recording> Record(const LayerGraph& graph) {
  std::vector<Recording> recordings;
  for (Node* node : graph.nodes()) {
    if (!graph.reaches_input(node)) continue;
    Recording recording{node, {}, std::make_shared<variable_list>()};
    for (const Edge& next : node->next_edges()) {
      if (!next.is_valid() || graph.reaches_input(next.function.get())) {
        continue;
      }
      graph.AddParameters(next.function.get(), &recording.parameters);
    }
    if (recording.parameters.empty()) continue;
    node->add_pre_hook(std::make_unique<Recorder>(recording.gradients));
    recordings.push_back(std::move(recording));
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

}  // namespace

at::Tensor BackwardInput(const at::Tensor& output, const at::Tensor& input,
                         const at::Tensor& gradient, WeightHalf* rest) {
  if (!input.requires_grad()) {
    rest->output = output;
    rest->gradient = gradient;
    return {};
  }
  const std::shared_ptr<Node> leaf =
      torch::autograd::impl::grad_accumulator(input);
  const std::shared_ptr<Node> root = output.grad_fn();
  // A layer that passes its input on as it is.
  if (root == nullptr || root == leaf) return gradient;
  const LayerGraph graph(root.get(), leaf.get());
  std::vector<Recording> recordings = Record(graph);

  at::Tensor result = torch::autograd::grad({output}, {input}, {gradient},
                                            /*retain_graph=*/true)[0];
  for (Node* node : graph.nodes()) {
    if (!graph.reaches_input(node) || node == leaf.get()) continue;
    if (node->pre_hooks().empty()) {
      node->release_variables();
    } else {
      node->pre_hooks().clear();
    }
  }
  for (Recording& recording : recordings) {
    rest->junctions.push_back(ToJunction(std::move(recording)));
  }
  return result;
}

void BackwardWeight(WeightHalf rest) {
  if (rest.output.defined()) {
    torch::autograd::backward({rest.output}, {rest.gradient});
    return;
  }
  for (const WeightHalf::Junction& junction : rest.junctions) {
    if (junction.inputs.empty()) continue;
    torch::autograd::Engine::get_default_engine().execute(
        junction.inputs, junction.gradients, /*keep_graph=*/false,
        /*create_graph=*/false, /*accumulate_grad=*/true, junction.parameters);
  }
}

}  // namespace paceline
