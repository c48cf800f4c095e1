// A model as a chain of layers, described without LibTorch: what the
// coordinator and the client know of it, and what worker/torch builds from.
// Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// Layers [first, last) of the model's chain.
struct LayerRange {
  int first = 0;
  int last = 0;

  friend auto operator<=>(const LayerRange&, const LayerRange&) = default;
};

// Low-rank adapters beside linear maps of an operation: W x + b becomes
// W x + b + scale B (A x).
struct Adapters {
  // The maps, by the places of their weights among the operation's parameters,
  // ascending.
  std::vector<int> beside;
  int64_t rank = 0;
  double scale = 0;
};

// One operation inside a layer.  What the kinds are and what their sizes mean
// is written in core/model/operation.h (conv2d: in, out, kernel, stride, pad).
struct Operation {
  std::string kind;  // linear, conv2d, relu, max_pool2d, layer_norm, ...
  std::string name;  // prefix of its parameters, "" when it has none
  std::vector<int64_t> sizes;
  double probability = 0;  // dropout only
  Adapters adapters = {};
};

// One of the tensors that cross a boundary, of one sample.
struct SampleTensor {
  DType dtype = DType::kF32;
  Shape shape;

  friend bool operator==(const SampleTensor&, const SampleTensor&) = default;
};

// The smallest piece the planner may place.
struct Layer {
  std::string name;  // unique in the model, for people
  std::vector<Operation> operations;
  std::vector<Parameter> parameters;  // in the order of the step gate's norms
  // Those of a lower layer, which owns them, that this one computes with too:
  // it has a value of its own, and sums its gradients apart.
  std::vector<Parameter> borrowed;
  Shape output;  // of one sample, without the batch
  // Later layers need these besides `output`: masks and tokens, and float32,
  // which has gradients as `output` has.
  std::vector<SampleTensor> beside;
  double forward_flops = 0;     // a sample; a multiply-add counts 2
  int64_t parameter_bytes = 0;  // without the borrowed
  int64_t borrowed_bytes = 0;
  int64_t output_bytes = 0;      // a sample; with what goes beside it
  int64_t activation_bytes = 0;  // a sample, kept for backward
  // Share of the work that a backward has where all parameters of the model
  // train.
  double backward_share = 1;
  std::string init = "auto";  // how its weights are drawn
  // The residual block that it is, or is a part of, counted from 0; -1: none.
  // A layer that begins with a residual is a block; of a transformer the
  // attention half and the MLP half are one.
  int block = -1;
  // Its input is its output; its parameters stay as they are.
  bool skipped = false;
};

struct ModelDescription {
  std::string name;
  Shape input;                      // of one sample
  DType input_dtype = DType::kF32;  // kI64: numbers of tokens
  int64_t vocabulary = 0;           // tokens are below this
  int32_t classes = 0;
  // The labels of one sample: [], or one a token that has a label.
  Shape label_shape;
  std::vector<Layer> layers;
  // A script's: where it is on every worker, and the hash of its bytes.
  std::string file;
  std::string file_sha256;
  // Second names that files have for a tensor: `alias` may be in a file too, as
  // long as it is equal.
  struct Alias {
    std::string alias;
    std::string name;
  };
  std::vector<Alias> aliases;
  // How many units each group has that may be pruned (core/weights/derived.h);
  // empty: nothing may.
  std::vector<int32_t> sizes;
  bool pruned = false;  // model.sizes said so
  // A transformer's module in the last layer that gives class scores
  // ("classifier"); it trains beside adapters.  Empty: none.
  std::string head;
  // The job's weights depend on this, and no shape shows it:
  // core/job/job_model.h.
  std::map<std::string, std::string> made_with;
  // The model of train.distill; null: none.
  std::shared_ptr<const ModelDescription> teacher;
};

// Returns what crosses the boundary behind `layer`, without the labels: its
// output, and what goes beside it.
std::vector<SampleTensor> BoundaryTensors(const Layer& layer);

// Returns what comes back over it: a gradient for each of these that is
// float32, in their order.
std::vector<SampleTensor> GradientTensors(const Layer& layer);

// Returns the input of a stage that begins with layer `first`, without labels.
std::vector<SampleTensor> InputTensors(const ModelDescription& model,
                                       int first);

// A parameter that two layers compute with.
struct SharedParameter {
  std::string name;
  Shape shape;
  int owner = 0;  // layer; the lowest of those that use it
  int user = 0;   // layer

  friend bool operator==(const SharedParameter&,
                         const SharedParameter&) = default;
};

// One for each parameter that some layer borrows, users ascending.
//   frozen_too  else those alone that steps change
std::vector<SharedParameter> SharedParameters(const ModelDescription& model,
                                              bool frozen_too = false);

// Whether a step changes any parameter of the layers before `layer`.
bool TrainsBelow(const ModelDescription& model, int layer);

// Whether it has anything that forwards change and no gradient: running
// statistics.
bool HasBuffers(const ModelDescription& model);

// Whether `spec` is a script that no worker has looked into: DescribeModel()
// cannot say anything of it yet.
bool NeedsWorker(const ModelSpec& spec);

// Describes `spec.name` for samples of shape `input`.  Same arguments, same
// description on every machine.
//
// Errors:
//   InvalidArgument     unknown name, sizes that do not fit the input, or a
//                       spec.only that is no such word, or with which nothing
//                       would train; says which
//   FailedPrecondition  a script that no worker has described yet
//
// Freezes the parameters that spec.only leaves out.  They have no gradient and
// no optimizer's state, and are in no round; snapshots, files of weights and
// hashes have them as before.
//   all     nothing
//   head    all but the parameters of the last layer that has any
//   norm    all but scales and shifts of normalisations
//   last-N  all but the last N layers
// With adapters (spec.lora): all but these and ModelDescription::head.  Buffers
// still move by themselves.  A parameter that layers share trains where its
// owner does.
absl::StatusOr<ModelDescription> DescribeModel(const ModelSpec& spec,
                                               const Shape& input,
                                               int32_t classes);

// The same model without what a job does to it in training.
ModelSpec BareModel(ModelSpec spec);

// All names that DescribeModel knows but `script`, sorted.
std::vector<std::string> ModelNames();

inline constexpr int64_t kMostRank = 65536;  // of adapters

// Errors: InvalidArgument  spec.lora is impossible, or not for this model
absl::Status CheckLora(const ModelSpec& spec);

// --- residual blocks that are left out: their input is their output ---
//
// The fault skip-stage leaves a block out of a whole job, and train.layer_drop
// leaves blocks out of single micro-batches.

// Says why the model cannot go without a block, or has none of that number;
// empty: it can.
std::string WhyNotSkipped(const ModelDescription& model, int64_t block);

// Replaces a block by the identity: its layers cost nothing, and their
// parameters stay as they are.  WhyNotSkipped() is empty for the block.
void SkipBlock(ModelDescription& model, int64_t block);

// Skips the blocks that faults of kind skip-stage name.
// Errors: InvalidArgument  as WhyNotSkipped()
absl::Status SkipBlocksOf(const JobSpec& spec, ModelDescription& model);

// Whether training leaves a block out of a micro-batch (LayerDrop, Fan et al.
// 2019, section 3: without scaling; evaluations have all blocks).
bool IsDropped(const TrainSpec& train, int64_t step, int micro_batch,
               int block);

// [last - first]: Layer::block of these layers, -1 where the block has to stay.
std::vector<int> DroppableBlocks(const ModelDescription& model, int first,
                                 int last);

// Says why train.layer_drop is not for this model; empty: it is.
std::string WhyNoLayerDrop(const ModelDescription& model);

}  // namespace paceline
