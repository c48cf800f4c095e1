// The interface of the engine that computes one stage of a model.  worker/torch
// implements it on LibTorch, tests/support/pipeline/fake_engine.h without.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/data/batch.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/optim/step_gate.h"
#include "core/plan/plan.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// Sums over the labels of one micro-batch, from the last stage: one a sample,
// or one a token.
struct LossSums {
  double loss = 0;  // cross-entropy, summed
  int64_t correct = 0;
  int64_t samples = 0;  // labels that are some: kNoLabel is none

  void Add(const LossSums& more) {
    loss += more.loss;
    correct += more.correct;
    samples += more.samples;
  }
};

struct ForwardResult {
  // For the next stage.  On the last one empty, or in inference what its
  // layers gave and the labels, as they came.
  TensorList output;
  std::optional<LossSums> loss;  // on the last stage only
};

// A layer was computed.
struct LayerDone {
  int layer = 0;  // in the model
  bool backward = false;
  // Tensor memory that this call has allocated so far and not freed; -1: the
  // engine does not know.
  int64_t live_bytes = -1;
};

class StageEngine;

// An engine is made from these.
struct EngineOptions {
  ModelDescription model;
  LayerRange layers;  // of this stage
  TrainSpec train;
  int stage = 0;
  int stages = 1;
  // For schedules without a flush: the parameters that a micro-batch went
  // forward with are kept until its backward, whatever updates come between.
  bool stashes = false;
  // Batches of training never come: nothing is held for gradients.
  bool inference = false;
  // Called in training on the compute thread after each layer of a forward or
  // backward, when the gradients of its parameters are in the sum.  For the
  // profiler, since counting memory costs time; with flat_gradient nothing is
  // counted.
  std::function<void(const LayerDone&)> on_layer = nullptr;
  Precision precision = Precision::kF32;
  // The gradients of all parameters lie side by side: FlatGradient().  Not for
  // engines that stash.  Users of a shared parameter whose owner is here too
  // have its memory, and add their gradients to its own as they come: Tied()
  // is not for these.
  bool flat_gradient = false;
  // An engine of all layers that was made for inference: training shall come
  // near to what it gives (train.distill).  Null: none.
  std::shared_ptr<StageEngine> teacher = nullptr;
};

// The memory of a parameter that two layers share, as one of them has it.
struct TiedTensors {
  Tensor value;
  Tensor gradient;  // the sum of the step
};

// The versions that an engine stashes, after its last call.
struct StashReading {
  int versions = 1;   // of the parameters
  int64_t bytes = 0;  // of all of them; gradients and optimizer not counted
  // Updates between the version at which the gradient of the last update was
  // computed and the one to which it was applied.
  int64_t staleness = 0;
};

// Pieces of memory that count as one row of bytes.  Nothing is owned.
class ScatteredBytes {
 public:
  void Add(const Tensor& tensor);

  size_t size() const { return size_; }
  const std::vector<absl::Span<uint8_t>>& pieces() const { return pieces_; }
  // `to` and `from` have size() bytes.
  void CopyTo(uint8_t* to) const;
  void CopyFrom(const uint8_t* from) const;

 private:
  std::vector<absl::Span<uint8_t>> pieces_;
  size_t size_ = 0;
};

// Lives on the compute thread: made, used and dropped there.
//
// A micro-batch crosses a boundary as a list of tensors: the activation
// [micro_batch, ...] float32, what goes beside it (Layer::beside), and the
// labels [micro_batch, ...label_shape] int64, which travel untouched to the
// last stage. The first stage takes samples of the model's input_dtype in the
// activation's place.  A gradient is a list too, GradientTensors(): one of the
// shape of the activation, and of each float32 tensor beside it.
//
// An engine does not own a parameter that a layer borrows: the parameter is no
// part of its reports, updates and weights.  The caller of the engines adds its
// gradient to the owner's before the owner reports, and hands the value back
// after an update (worker/pipeline/step_exchange.h).
class StageEngine {
 public:
  virtual ~StageEngine() = default;

  // Runs the layers over `input`; in training keeps what backward needs until
  // Backward() of the same micro-batch.
  // Errors: InvalidArgument  input of the wrong count, dtype or shape
  virtual absl::StatusOr<ForwardResult> Forward(const BatchInfo& batch,
                                                int micro_batch,
                                                TensorList input) = 0;

  // Adds the gradient of a micro-batch to the sum of the step.
  //   output_gradient  d(sum of losses)/d(output); empty on the last stage
  // Returns d(sum of losses)/d(input); empty on the first stage.
  // Errors: InvalidArgument  wrong count or shape; FailedPrecondition  no
  // forward kept
  virtual absl::StatusOr<TensorList> Backward(const BatchInfo& batch,
                                              int micro_batch,
                                              TensorList output_gradient) = 0;

  // The two halves of Backward(), in this order, with other micro-batches'
  // between them as a schedule likes; together the same bytes.  The first gives
  // d(sum of losses)/d(input), the second adds the gradients of the parameters
  // to the sum of the step.
  // Errors: as Backward; the second: FailedPrecondition  no first half
  virtual absl::StatusOr<TensorList> BackwardInput(
      const BatchInfo& batch, int micro_batch, TensorList output_gradient) = 0;
  virtual absl::Status BackwardWeight(const BatchInfo& batch,
                                      int micro_batch) = 0;

  // The memory of a shared parameter that a layer of this engine has: as its
  // owner, or as one that borrows it.  The memory is the engine's own, with the
  // newest value; to be read and written between the last backward of a step
  // and the first forward of the next.
  // Errors:
  //   NotFound            no layer here owns (borrows) a parameter of that name
  //   FailedPrecondition  flat_gradient
  virtual absl::StatusOr<TiedTensors> Tied(const std::string& name,
                                           bool owner) = 0;

  // The report to the gate on the summed gradient of `batch`.
  virtual absl::StatusOr<StepReport> Report(const BatchInfo& batch) = 0;

  // Applies (or skips) the update; clears the sum.  An engine that stashes
  // takes it while micro-batches wait for their backward.
  virtual absl::Status Apply(const StepVerdict& verdict) = 0;

  // Engines that stash: the next forward computes at the version after
  // `version` updates (skipped ones count), and no later forward at an older
  // one.  One more than the newest means that no later forward wants the
  // newest: the next update overwrites it.  Evaluations always use the newest.
  // Errors: FailedPrecondition  the version is not there, or the engine does
  //         not stash
  virtual absl::Status UseVersion(int64_t version) = 0;
  virtual StashReading Stash() const = 0;

  // Parameters and buffers as they are now, in layer order.  The memory is
  // the engine's own and changes with the next Apply().
  virtual absl::StatusOr<std::vector<NamedTensor>> Weights() = 0;
  // The caller that wrote into that memory calls this before the next forward:
  // engines may keep results of the old values.
  virtual void OnWeightsWritten() {}

  // Overwrites the parameters and buffers of these names, borrowed ones too;
  // others stay as they are, and so does what the optimizer remembers.  Between
  // two steps only.
  // Errors (nothing was written):
  //   InvalidArgument     a name that is not of this stage, or another dtype or
  //                       shape
  //   FailedPrecondition  in the middle of a step
  virtual absl::Status SetWeights(const std::vector<NamedTensor>& weights) = 0;

  // --- State ---
  //
  // The state of a layer is its parameters and buffers, each followed by the
  // optimizer's slots, as bytes.  It includes what the layer borrows, unless
  // that is the owner's own memory.  One layer's state is therefore enough to
  // restore that layer.

  // The state of each layer of this stage, ascending.  The memory is the
  // engine's own: it has the newest values, and changes with the next call.
  // An engine that stashes gives buffers as they were before the forwards that
  // wait for their backward: a run that goes on from the state repeats these.
  virtual std::vector<ScatteredBytes> State() const = 0;
  // XXH3-64 of the same bytes of all layers, one after the other.
  uint64_t StateHash() const;

  // Overwrites the state.  Drops the open step, as AbandonStep().
  //   layers  one entry a layer of this stage
  // Errors (nothing was written):
  //   InvalidArgument  not as many layers, or a layer of another size
  absl::Status RestoreState(
      const std::vector<absl::Span<const uint8_t>>& layers);
  // Drops what was computed of the open step: forwards kept, the sum.  An
  // engine that stashes keeps its newest version alone, as version 0.
  // Implementations call ReadOwnSum() too.
  virtual void AbandonStep() = 0;

  // --- Data parallelism ---
  //
  // An engine made without EngineOptions::flat_gradient answers with
  // FailedPrecondition, or nothing.

  // The sum of the step, of all trainable parameters in layer order, as one
  // vector, with the statistics of batch normalisations behind them.  The
  // memory is the engine's own: it may be read (sent) until the next Forward,
  // and written between Backward and Report, so that what members agreed on is
  // what is reported and applied: Report() does not ask whether the batch is
  // whole, and its `samples` are those that this engine summed.
  absl::StatusOr<absl::Span<float>> FlatGradient();
  // In the last backward of a step: `on_final` hears, on the compute thread,
  // that values [begin, all) do not change any more.  begin never grows.  Null
  // ends it.
  void StreamSum(std::function<void(size_t begin)> on_final);
  // [layers of this stage + 1]: where in it each layer's parameters begin.
  const std::vector<size_t>& GradientOffsets() const { return offsets_; }
  // The other way to say what members agreed on, without a copy: Report() and
  // Apply() read it from `pieces`, which are side by side what FlatGradient()
  // would be.  Their memory stays until Apply(), AbandonStep() or
  // RestoreState(), after which the sum is the engine's own again.
  // Errors: InvalidArgument  not of its size
  absl::Status ReadSumFrom(std::vector<absl::Span<const float>> pieces);

 protected:
  // Allocates the gradients of all trainable parameters, as zeros.  The engine
  // gives each its FlatView(), in the order of the layers.
  void MakeFlat(const EngineOptions& options);
  // float32 of `shape` from element `offset` of these gradients on.
  Tensor FlatView(size_t offset, const Shape& shape) const;
  // The part behind the gradients: a value for each of a buffer.
  Tensor FlatTail() const;
  bool is_flat() const { return !offsets_.empty(); }
  // For StreamSum(): after the backward of a layer.
  void OnLayerSummed(size_t layer) { SayFinal(offsets_[layer]); }
  // Within one: values [begin, end) of a view are as they will be.
  void OnWritten(const float* begin, const float* end);

  // Report() and Apply() read this for a parameter whose own sum is `gradient`:
  // that sum, or where in the group's pieces (ReadSumFrom) it lies.
  std::vector<absl::Span<const float>> SumOf(Tensor gradient) const;
  std::vector<float> CopyOfSum(Tensor gradient) const;
  void ReadOwnSum() { pieces_.clear(); }

 private:
  // Makes zeros of what no backward has written since the last step, unless one
  // is still to come.
  virtual void SettleSum() {}
  void SayFinal(size_t begin);

  std::vector<size_t> offsets_;  // as GradientOffsets()
  Tensor flat_;
  std::function<void(size_t begin)> on_final_;
  size_t final_from_ = 0;                        // since StreamSum()
  std::vector<absl::Span<const float>> pieces_;  // empty: the sum is in flat_
};

// Values of FlatGradient() of these layers.
int64_t FlatValues(const ModelDescription& model, const LayerRange& layers);

// Counts what an engine keeps for updates: sums of gradients and the
// optimizer's state.  0 where nothing trains.
int64_t UpdateBytes(const EngineOptions& options);

// Labels that count: all but kNoLabel.
int64_t CountLabels(const Tensor& labels);

// Whether `tensor` is `expected` for `samples`.
// Errors: InvalidArgument  begins with `what`; says both types and shapes
absl::Status CheckTensor(const char* what, const Tensor& tensor,
                         int64_t samples, const SampleTensor& expected);

// Errors unless `input` is what a stage takes whose layers begin with `first`:
// InputTensors() and the labels, `samples` of each, and tokens in range.
// Errors: InvalidArgument  says what came and what was expected
absl::Status CheckStageInput(const ModelDescription& model, int first,
                             int64_t samples, const TensorList& input);

// Errors: InvalidArgument  a label that is neither kNoLabel nor a class
absl::Status CheckLabels(const Tensor& labels, int64_t classes);

// Looks at each parameter and buffer, after an update that led to `step` steps.
// Errors: InvalidArgument  NaN or infinity in one, which no further step takes
//         away: names it
absl::Status CheckFinite(StageEngine& engine, int64_t step);

// Tied() answers this with flat_gradient.
absl::Status OwnTies();

// For SetWeights(): copies the values of `weights` into the memory of those of
// the same name in `own`, of which there may be several.
// Errors: InvalidArgument  as SetWeights()
absl::Status OverwriteWeights(const std::vector<NamedTensor>& weights,
                              const std::vector<NamedTensor>& own);

struct TensorPart {
  std::string name;  // of the whole
  Tensor tensor;
  int64_t offset_bytes = 0;  // where in the whole it begins
};

}  // namespace paceline
