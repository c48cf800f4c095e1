// One layer of a description as LibTorch computes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/model/description.h"

namespace paceline {

// A parameter, the sum of its gradients and the optimizer's state.  All of it
// is memory of our own that LibTorch only views: its place never changes, and
// autograd adds gradients up in it.
struct TorchParameter {
  TorchParameter(const Parameter& parameter, int state_slots);

  std::string name;
  Tensor value;
  Tensor gradient;
  std::vector<Tensor> state;
  at::Tensor variable;  // a leaf; its .grad() is `gradient`
};

// Lives on the compute thread.
class TorchLayer {
 public:
  // Draws the first values from (seed, index); throws what LibTorch throws.
  //   index  of the layer in the whole model
  TorchLayer(const Layer& layer, int64_t seed, int index, int state_slots);

  // [micro_batch, ...input] -> [micro_batch, ...output], contiguous.  `input`
  // is not written.
  at::Tensor Forward(const at::Tensor& input, bool training) const;

  // Whether Forward draws from the default generator in training.
  bool draws() const { return draws_; }

  // From the next Forward() on the parameters are `variables`, one for each of
  // parameters() and in their order.  Graphs that are there keep theirs.
  void Bind(absl::Span<const at::Tensor> variables);

  std::vector<TorchParameter>& parameters() { return parameters_; }
  const std::vector<TorchParameter>& parameters() const { return parameters_; }

 private:
  struct State;
  using Compute = at::Tensor (*)(const State& state, const at::Tensor& input);
  struct Step {
    Compute compute;
    Operation operation;
    std::vector<at::Tensor> parameters;
  };

  static Compute FindCompute(const Layer& layer, size_t operation);

  std::vector<TorchParameter> parameters_;
  std::vector<Step> steps_;
  bool draws_ = false;

  friend struct Computations;
};

}  // namespace paceline
