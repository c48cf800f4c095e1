// A stage's layers in training: forward, and backward layer by layer, with
// everything kept between them or computed once more
// (core/job/spec/job_spec.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ATen/ATen.h"
#include "core/base/tensor.h"
#include "core/job/spec/job_spec.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/torch/operations/computations.h"
#include "worker/torch/split_backward.h"
#include "worker/torch/torch_layer.h"

namespace paceline {

// Layers [first, last) of the stage and one micro-batch.
struct KeptSegment {
  int first = 0;
  int last = 0;
  bool needs_gradient = false;  // its input
  // Where it is computed once more: what from.  Else undefined.
  at::Tensor input;
  std::vector<at::Tensor> beside;
  // [last - first], or none yet where it is computed once more.
  std::vector<Trace> traces;
};

// Backward needs these of one micro-batch.
struct KeptLayers {
  // Dropout is drawn from these.
  int64_t step = 0;
  int micro_batch = 0;
  std::vector<KeptSegment> segments;
  std::vector<LayerStatistics> statistics;  // one a layer
  // One a layer, or none where they are not needed: values that a script's
  // forward moves, before it did.
  std::vector<std::vector<Tensor>> buffers;
};

struct StageLayersOptions {
  int first_layer = 0;  // of the stage, in the model
  TrainSpec train;      // what dropout and dropped blocks are drawn from
  std::vector<int> blocks = {};  // [layers]: those that may be dropped, or -1
  Recompute recompute;
  bool keeps_buffers = false;  // also where nothing is computed once more
  std::function<void(const LayerDone&)> on_layer = nullptr;
  bool counts_memory = true;  // for on_layer
};

// Every layer's output is contiguous and detached.  A layer that is computed
// once more draws the same numbers, takes the parameters that it is bound to,
// and moves no statistics.  So the bytes of a gradient do not depend on the
// segments.
//
// Lives on the compute thread.  Throws what LibTorch throws.
class StageLayers {
 public:
  // `layers` outlives this.
  StageLayers(std::vector<TorchLayer>& layers, StageLayersOptions options);

  bool recomputes() const { return options_.recompute.recomputes; }

  // [micro_batch, ...] -> [micro_batch, ...], detached.
  //   beside          what goes beside x; afterwards, beside the output, as
  //                   detached
  //   needs_gradient  in: whether the gradients of the input are wanted; out:
  //                   whether those of the output are
  //   kept            step and micro_batch are set; the rest is filled in
  at::Tensor Forward(at::Tensor x, std::vector<at::Tensor>* beside,
                     bool* needs_gradient, KeptLayers* kept) const;

  // Adds the parameters' gradients to theirs.
  //   gradients  of the output, and of each float32 tensor beside it
  // Returns those of the input and of the float32 tensors beside that,
  // undefined where none came to one; where none are wanted they mean nothing.
  Gradients Backward(KeptLayers kept, Gradients gradients) const;

  // The first half of it; what the second needs is put behind `rest`, in the
  // order of the backward.
  Gradients BackwardInput(KeptLayers kept, Gradients gradients,
                          std::vector<WeightHalf>* rest) const;

 private:
  // One layer's backward; from the gradients of the output to the input's.
  using Step =
      std::function<Gradients(const Trace& trace, const Gradients& gradients)>;

  void SeedFor(int layer, const KeptLayers& kept) const;
  // A layer's Forward(), or its input where this micro-batch goes without it.
  at::Tensor ForwardLayer(int layer, const at::Tensor& x,
                          std::vector<at::Tensor>* beside,
                          KeptLayers* kept) const;
  at::Tensor ForwardSegment(at::Tensor x, std::vector<at::Tensor>* beside,
                            KeptLayers* kept, KeptSegment* segment) const;
  at::Tensor ForwardOnly(at::Tensor x, std::vector<at::Tensor>* beside,
                         KeptLayers* kept, KeptSegment* segment) const;
  void Recompute(const KeptLayers& kept, KeptSegment* segment) const;
  Gradients Walk(KeptLayers kept, Gradients gradients, const Step& step) const;
  bool Trains(int first, int last) const;  // layers
  bool meters() const {
    return options_.counts_memory && options_.on_layer != nullptr;
  }
  void Say(int layer, bool backward, int64_t live_bytes) const;

  std::vector<TorchLayer>& layers_;
  const StageLayersOptions options_;
};

}  // namespace paceline
