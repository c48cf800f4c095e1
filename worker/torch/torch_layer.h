// One layer of a description as LibTorch computes it.
#pragma once

#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/model/description.h"
#include "torch/script.h"
#include "worker/torch/operations/computations.h"
#include "worker/torch/operations/precision.h"

namespace paceline {

// Layers that are never trained.
inline constexpr int kNoGradient = -1;

// A parameter, the sum of its gradients and the optimizer's state; or a
// buffer, which has neither.  All of it is memory of our own that LibTorch only
// views: its place never changes, and autograd adds gradients up in it.
struct TorchParameter {
  // state_slots: of the optimizer; kNoGradient: neither those nor a gradient.
  TorchParameter(const Parameter& parameter, int state_slots);

  // Its gradients are summed in `sum` from now on, of the same shape and zeros.
  void SumIn(Tensor sum);
  // A borrowed one: value and sum are the owner's memory from now on.  Before
  // the first forward only.
  void Share(TorchParameter& owner);

  // Makes zeros of the sum; lazily: in Settle(), unless a gradient has come by
  // then, which is copied instead of added, or was written there.
  void Clear(bool lazily);
  void Settle();

  // Whether an update of this layer changes it.
  bool updates() const { return trainable && !borrowed; }

  std::string name;
  bool trainable;
  bool borrowed = false;  // a lower layer's: of value and gradient a copy
  Tensor value;
  Tensor gradient;
  std::vector<Tensor> state;
  bool shared = false;  // value and sum, with another one
  bool settled = true;  // the sum is in `gradient`
  at::Tensor variable;  // a leaf; settled: its .grad() is `gradient`
};

// Lives on the compute thread.
class TorchLayer {
 public:
  // Draws the first values from (seed, index), but those of what it borrows;
  // throws what LibTorch throws.
  //   index     of the layer in the whole model
  //   products  outlives this
  TorchLayer(const Layer& layer, int64_t seed, int index, int state_slots,
             Products& products);

  // A layer of operation `script`: `child`, whose tensors become the values
  // here.  Nothing is drawn.
  // Throws c10::Error when the child's tensors are not the description's.
  TorchLayer(const Layer& layer, const torch::jit::Module& child,
             int state_slots, Products& products);

  // [micro_batch, ...input] -> [micro_batch, ...output], float32, contiguous.
  // `input` is not written.
  //   statistics  of training, to be filled in; null: none are wanted
  //   beside      what goes beside the input; afterwards, beside the output.
  //               Null only where the model has no such thing
  at::Tensor Forward(const at::Tensor& input, bool training,
                     LayerStatistics* statistics,
                     std::vector<at::Tensor>* beside = nullptr) const;

  // Moves the running statistics of its normalisations towards those of one
  // micro-batch, as Forward() filled them in.
  // A script's own normalisations move theirs in every training forward.
  void Fold(const LayerStatistics& statistics);

  // The two halves of that for data parallelism (core/optim/optimizer.h).  A
  // layer takes its buffers' number of values from the front of `sums`: of each
  // normalisation mean, variance and weight.
  void AddTo(const LayerStatistics& statistics, float weight,
             absl::Span<float>& sums) const;
  void FoldSums(int micro_batches, absl::Span<const float>& sums);

  // Whether Forward draws from the default generator in training.
  bool draws() const { return draws_; }

  // Copies of the buffers that a training Forward() moves by itself, those of a
  // script; and their values back, behind autograd's back: nothing in training
  // reads them twice.
  std::vector<Tensor> MovedBuffers() const;
  void SetMovedBuffers(const std::vector<Tensor>& values);

  // From the next Forward() on the parameters and buffers are `variables`, one
  // for each of parameters() and in their order.  Graphs that are there keep
  // theirs.
  void Bind(absl::Span<const at::Tensor> variables);

  // And buffers; borrowed ones last.
  std::vector<TorchParameter>& parameters() { return parameters_; }
  const std::vector<TorchParameter>& parameters() const { return parameters_; }
  // The sums of all of them.
  void Settle() {
    for (TorchParameter& parameter : parameters_) parameter.Settle();
  }

 private:
  struct Step {
    Compute compute;
    Operation operation;
    std::vector<at::Tensor> parameters;
    std::vector<size_t> at;  // in parameters_
  };

  // Gives `step` the parameters of its operation from `next` on.
  void Give(Step& step, size_t end, size_t& next);

  at::Tensor ForwardScript(const at::Tensor& input, bool training) const;
  void AdoptBuffers() const;

  Products* products_;
  std::vector<TorchParameter> parameters_;
  std::vector<Step> steps_;
  // A script's.  A call changes `training` and the buffers in it.
  mutable std::optional<torch::jit::Module> child_;
  bool writes_input_ = false;
  bool draws_ = false;
};

// A range over TorchLayer::parameters() of each of `layers`, one layer after
// the other.  `layers` outlive it.
template <typename Layers>
auto AllParameters(Layers& layers) {
  return layers | std::views::transform([](auto& layer) -> auto& {
           return layer.parameters();
         }) |
         std::views::join;
}

}  // namespace paceline
