#include "worker/torch/stage_layers.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "ATen/ATen.h"
#include "core/model/description.h"
#include "core/model/initialize.h"
#include "worker/torch/allocation_meter.h"

namespace paceline {
namespace {

void SeedDefaultGenerator(uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

// The floats beside an activation become leaves of the next layer.
void Detach(bool needs_gradient, std::vector<at::Tensor>* beside) {
  for (at::Tensor& tensor : *beside) {
    if (!tensor.is_floating_point()) continue;
    tensor = tensor.detach().set_requires_grad(needs_gradient);
  }
}

// The tensors that have gradients, or would have: the activation and the floats
// beside it.
std::vector<at::Tensor> FloatsOf(const at::Tensor& x,
                                 const std::vector<at::Tensor>& beside) {
  std::vector<at::Tensor> floats = {x};
  std::copy_if(
      beside.begin(), beside.end(), std::back_inserter(floats),
      [](const at::Tensor& tensor) { return tensor.is_floating_point(); });
  return floats;
}

}  // namespace

StageLayers::StageLayers(std::vector<TorchLayer>& layers,
                         StageLayersOptions options)
    : layers_(layers), options_(std::move(options)) {}

void StageLayers::SeedFor(int layer, const KeptLayers& kept) const {
  if (!layers_[layer].draws()) return;
  SeedDefaultGenerator(DropoutSeed(options_.train.seed, kept.step,
                                   kept.micro_batch,
                                   options_.first_layer + layer));
}

at::Tensor StageLayers::ForwardLayer(int layer, const at::Tensor& x,
                                     std::vector<at::Tensor>* beside,
                                     KeptLayers* kept) const {
  if (IsDropped(options_.train, kept->step, kept->micro_batch,
                options_.blocks[layer])) {
    return x;
  }
  SeedFor(layer, *kept);
  return layers_[layer].Forward(x, /*training=*/true, &kept->statistics[layer],
                                beside);
}

void StageLayers::Say(int layer, bool backward, int64_t live_bytes) const {
  if (options_.on_layer == nullptr) return;
  options_.on_layer({options_.first_layer + layer, backward, live_bytes});
}

at::Tensor StageLayers::Forward(at::Tensor x, std::vector<at::Tensor>* beside,
                                bool* needs_gradient, KeptLayers* kept) const {
  kept->statistics.resize(layers_.size());
  if (recomputes() || options_.keeps_buffers) {
    for (const TorchLayer& layer : layers_) {
      kept->buffers.push_back(layer.MovedBuffers());
    }
  }
  for (const auto& [first, last] :
       SegmentsOf(options_.recompute, static_cast<int>(layers_.size()))) {
    KeptSegment& segment = kept->segments.emplace_back();
    segment.first = first;
    segment.last = last;
    segment.needs_gradient = *needs_gradient;
    if (recomputes()) {
      x = ForwardOnly(std::move(x), beside, kept, &segment);
      *needs_gradient = segment.needs_gradient || Trains(first, last);
    } else {
      x = ForwardSegment(std::move(x), beside, kept, &segment);
      *needs_gradient = segment.traces.back().needs_backward();
    }
  }
  return x;
}

// With a graph for each layer.
at::Tensor StageLayers::ForwardSegment(at::Tensor x,
                                       std::vector<at::Tensor>* beside,
                                       KeptLayers* kept,
                                       KeptSegment* segment) const {
  const AllocationMeter meter(meters());
  bool needs_gradient = segment->needs_gradient;
  segment->traces.reserve(segment->last - segment->first);
  for (int i = segment->first; i < segment->last; ++i) {
    const at::Tensor leaf = x.detach().set_requires_grad(needs_gradient);
    Detach(needs_gradient, beside);
    Trace trace{FloatsOf(leaf, *beside), {}};
    const at::Tensor output = ForwardLayer(i, leaf, beside, kept);
    trace.outputs = FloatsOf(output, *beside);
    needs_gradient = trace.needs_backward();
    x = output.detach();
    segment->traces.push_back(std::move(trace));
    Say(i, /*backward=*/false, meter.live_bytes());
  }
  Detach(/*needs_gradient=*/false, beside);
  return x;
}

at::Tensor StageLayers::ForwardOnly(at::Tensor x,
                                    std::vector<at::Tensor>* beside,
                                    KeptLayers* kept,
                                    KeptSegment* segment) const {
  const at::NoGradGuard no_graph;
  segment->input = x;
  segment->beside = *beside;
  for (int i = segment->first; i < segment->last; ++i) {
    x = ForwardLayer(i, x, beside, kept);
  }
  return x.detach();
}

void StageLayers::Recompute(const KeptLayers& kept,
                            KeptSegment* segment) const {
  std::vector<std::vector<Tensor>> now;
  for (int i = segment->first; i < segment->last; ++i) {
    now.push_back(layers_[i].MovedBuffers());
    layers_[i].SetMovedBuffers(kept.buffers[i]);
  }
  KeptLayers again{kept.step, kept.micro_batch, {}, {}, {}};
  // The statistics were told by the forward; these are dropped.
  again.statistics.resize(layers_.size());
  std::vector<at::Tensor> beside = std::exchange(segment->beside, {});
  ForwardSegment(std::exchange(segment->input, at::Tensor()), &beside, &again,
                 segment);
  for (int i = segment->first; i < segment->last; ++i) {
    layers_[i].SetMovedBuffers(now[i - segment->first]);
  }
}

// A segment before the first parameter of a model needs no backward.
bool StageLayers::Trains(int first, int last) const {
  const auto layers = absl::MakeSpan(layers_).subspan(first, last - first);
  return std::ranges::any_of(AllParameters(layers), &TorchParameter::trainable);
}

Gradients StageLayers::Walk(KeptLayers kept, Gradients gradients,
                            const Step& step) const {
  for (; !kept.segments.empty(); kept.segments.pop_back()) {
    KeptSegment& segment = kept.segments.back();
    if (segment.input.defined()) {
      if (!segment.needs_gradient && !Trains(segment.first, segment.last)) {
        break;
      }
      Recompute(kept, &segment);
    }
    const AllocationMeter meter(meters());
    for (; !segment.traces.empty(); segment.traces.pop_back()) {
      const Trace& trace = segment.traces.back();
      const int layer =
          segment.first + static_cast<int>(segment.traces.size()) - 1;
      if (trace.needs_backward()) {
        gradients = step(trace, gradients);
      } else if (!Trains(layer, layer + 1)) {
        return gradients;
      }
      // Where it was dropped, and nothing below trains, its sum is final too.
      layers_[layer].Settle();
      Say(layer, /*backward=*/true, meter.live_bytes());
    }
  }
  return gradients;
}

Gradients StageLayers::Backward(KeptLayers kept, Gradients gradients) const {
  return Walk(std::move(kept), std::move(gradients), WholeBackward);
}

Gradients StageLayers::BackwardInput(KeptLayers kept, Gradients gradients,
                                     std::vector<WeightHalf>* rest) const {
  return Walk(std::move(kept), std::move(gradients),
              [rest](const Trace& trace, const Gradients& of_outputs) {
                return paceline::BackwardInput(trace, of_outputs,
                                               &rest->emplace_back());
              });
}

}  // namespace paceline
