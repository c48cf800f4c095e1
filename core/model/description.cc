#include "core/model/description.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/job/spec/job_spec.h"
#include "core/model/catalog.h"
#include "core/model/chain.h"
#include "core/model/operation.h"

namespace paceline {
namespace {

constexpr int64_t kMostInputValues = 1 << 24;

absl::Status CheckRequest(const ModelSpec& spec, const Shape& input,
                          int32_t classes) {
  const bool positive =
      std::ranges::all_of(input, [](int64_t size) { return size > 0; });
  const int64_t values = NumElements(input);
  if (input.empty() || !positive || values < 1 || values > kMostInputValues) {
    return InvalidArgument(
        "samples of shape ", ShapeText(input),
        " cannot be learned from; need sizes of at least 1 and at most ",
        kMostInputValues, " values");
  }
  if (classes < 2) {
    return InvalidArgument("classes is ", classes, ", need at least 2");
  }
  if (!(spec.dropout >= 0 && spec.dropout < 1)) {
    return InvalidArgument("dropout must be in [0, 1), got ", spec.dropout);
  }
  return absl::OkStatus();
}

bool IsOfNorm(const Layer& layer, const Parameter& parameter) {
  return std::ranges::any_of(layer.operations, [&](const Operation& operation) {
    if (!Owns(operation, parameter)) return false;
    return absl::StartsWith(operation.kind, "layer_norm") ||
           operation.kind == "batch_norm2d" ||
           // Its batch_norm2d.
           (operation.kind == "residual_project" &&
            absl::StartsWith(parameter.name, operation.name + ".1."));
  });
}

// The first of the layers that train.
absl::StatusOr<int> FirstOf(const ModelSpec& spec,
                            const ModelDescription& model) {
  const int layers = static_cast<int>(model.layers.size());
  if (spec.only == kTrainsAll || spec.only == "norm") return 0;
  if (spec.only == "head") {
    int last = layers - 1;
    while (last > 0 && model.layers[last].parameters.empty()) --last;
    return last;
  }
  absl::string_view count = spec.only;
  int last = 0;
  if (!absl::ConsumePrefix(&count, "last-") ||
      !absl::SimpleAtoi(count, &last) || last < 1) {
    return InvalidArgument(
        "train.only must be all, head, norm, or last-N with N layers, got '",
        absl::CHexEscape(spec.only), "'");
  }
  if (last > layers) {
    return InvalidArgument("train.only is ", spec.only, ", but ", model.name,
                           " has only ", Counted(layers, "layer"));
  }
  return layers - last;
}

// A backward computes gradients of inputs and of weights, each as long as a
// forward.
void CountBackwards(ModelDescription& model) {
  bool trains = false;  // something here or below
  for (Layer& layer : model.layers) {
    double weights = 0, trained = 0;
    for (const Parameter& parameter : layer.parameters) {
      trains = trains || parameter.trainable;
      if (parameter.shape.size() < 2) continue;
      const auto elements = static_cast<double>(NumElements(parameter.shape));
      weights += elements;
      if (parameter.trainable) trained += elements;
    }
    const double of_weights = weights > 0 ? trained / weights : 1;
    layer.backward_share = trains ? (1 + of_weights) / 2 : 0;
  }
}

// first: as FirstOf()
bool Trains(const ModelSpec& spec, const ModelDescription& model, int first,
            int layer, const Parameter& parameter) {
  if (spec.lora.rank > 0) {
    return IsOfAdapter(parameter) ||
           (!model.head.empty() &&
            absl::StartsWith(parameter.name, model.head + "."));
  }
  return layer >= first &&
         (spec.only != "norm" || IsOfNorm(model.layers[layer], parameter));
}

constexpr uint64_t kLayerDropStream = 0x6c647270;  // "ldrp"

bool BeginsWith(const Layer& layer, const char* kind) {
  return !layer.operations.empty() && layer.operations.front().kind == kind;
}

// Freezes what spec.only and spec.lora leave out, and counts what a backward
// has to do.
absl::Status Freeze(const ModelSpec& spec, ModelDescription& model) {
  PACELINE_ASSIGN_OR_RETURN(const int first, FirstOf(spec, model));
  if (spec.only == kTrainsAll && spec.lora.rank == 0) return absl::OkStatus();
  std::set<std::string> frozen;
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    Layer& layer = model.layers[i];
    for (Parameter& parameter : layer.parameters) {
      if (!parameter.trainable || Trains(spec, model, first, i, parameter)) {
        continue;
      }
      parameter.trainable = false;
      parameter.frozen = true;
      frozen.insert(parameter.name);
    }
    for (Parameter& parameter : layer.borrowed) {
      parameter.frozen = frozen.contains(parameter.name);
      parameter.trainable = !parameter.frozen;
    }
  }
  if (!TrainsBelow(model, static_cast<int>(model.layers.size()))) {
    return InvalidArgument("train.only is ", spec.only, ", but ", model.name,
                           " has no such parameters: nothing would train");
  }
  CountBackwards(model);
  return absl::OkStatus();
}

// Fills in Layer::block.
void NumberBlocks(ModelDescription& model) {
  int last = -1;
  bool half = false;  // the layer before is the first one of a block
  for (Layer& layer : model.layers) {
    const bool residual = BeginsWith(layer, "residual_begin") ||
                          BeginsWith(layer, "residual_project");
    if (residual) layer.block = half ? last : ++last;
    half = residual && std::ranges::any_of(
                           layer.operations, [](const Operation& operation) {
                             return absl::EndsWith(operation.kind, "attention");
                           });
  }
}

// Far above any model for small machines: a description may come from anyone.
constexpr size_t kMostLayers = 4096;
constexpr size_t kMostParameters = 100'000;
constexpr int64_t kMostBytes = int64_t{1} << 40;

template <typename... Parts>
absl::Status Impossible(const Parts&... what) {
  return InvalidArgument("the description of the script is impossible: ",
                         what...);
}

bool IsSize(DType dtype, const Shape& shape) {
  const int64_t bytes = TensorBytes(dtype, shape);
  return ElementBytes(dtype) > 0 && bytes >= 0 && bytes <= kMostBytes;
}

absl::Status CheckParameters(const ScriptLayer& layer,
                             std::set<std::string>& names) {
  for (const Parameter& parameter : layer.parameters) {
    if (!names.insert(parameter.name).second) {
      return Impossible("two parameters ", parameter.name);
    }
    if (!IsSize(parameter.dtype, parameter.shape) ||
        (parameter.trainable && parameter.dtype != DType::kF32)) {
      return Impossible("parameter ", parameter.name);
    }
  }
  return names.size() <= kMostParameters ? absl::OkStatus()
                                         : Impossible("too many parameters");
}

absl::StatusOr<Layer> DescribeLayer(const ScriptLayer& script,
                                    std::set<std::string>& names) {
  PACELINE_RETURN_IF_ERROR(CheckParameters(script, names));
  const bool numbers = script.activation_bytes >= 0 &&
                       script.activation_bytes <= kMostBytes &&
                       script.forward_flops >= 0 && script.forward_flops < 1e18;
  if (!numbers || script.output.empty() ||
      !IsSize(DType::kF32, script.output) || NumElements(script.output) < 1) {
    return Impossible("layer ", script.name);
  }
  Layer layer;
  layer.name = script.name;
  layer.operations = {
      {"script", script.name, {script.writes_input ? 1 : 0}, 0}};
  layer.parameters = script.parameters;
  layer.output = script.output;
  layer.forward_flops = script.forward_flops;
  layer.output_bytes = TensorBytes(DType::kF32, script.output);
  layer.activation_bytes = script.activation_bytes;
  for (const Parameter& parameter : layer.parameters) {
    layer.parameter_bytes += TensorBytes(parameter.dtype, parameter.shape);
  }
  return layer;
}

absl::Status DescribeScores(const std::string& file, ModelDescription& model) {
  const Shape& output = model.layers.back().output;
  const bool tokens = model.input_dtype == DType::kI64;
  if (output.back() != model.classes || output.size() > (tokens ? 2 : 1)) {
    return InvalidArgument(
        file, " ends with shape ", ShapeText(output), " of a sample, need [",
        model.classes, "]",
        tokens ? absl::StrCat(" or [tokens, ", model.classes, "]") : "",
        ": one score a class, as data.classes says",
        tokens ? ", of the sample or of each token" : "");
  }
  model.label_shape.assign(output.begin(), output.end() - 1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeModel(const ModelSpec& spec,
                                               const Shape& input,
                                               int32_t classes) {
  const CatalogEntry* const model = FindModel(spec.name);
  if (model == nullptr) {
    return InvalidArgument("unknown model '", spec.name, "'",
                           MeantText(spec.name, ModelNames()),
                           "; known are: ", absl::StrJoin(ModelNames(), ", "));
  }
  PACELINE_RETURN_IF_ERROR(CheckRequest(spec, input, classes));
  PACELINE_RETURN_IF_ERROR(CheckLora(spec));
  PACELINE_ASSIGN_OR_RETURN(ModelDescription described,
                            model->describe(spec, input, classes));
  PACELINE_RETURN_IF_ERROR(Freeze(spec, described));
  for (Layer& layer : described.layers) layer.init = spec.init;
  NumberBlocks(described);
  described.pruned = !spec.sizes.empty();
  return described;
}

ModelSpec BareModel(ModelSpec spec) {
  spec.lora = {};
  spec.only = kTrainsAll;
  spec.reset_head = false;
  return spec;
}

std::vector<SampleTensor> BoundaryTensors(const Layer& layer) {
  std::vector<SampleTensor> tensors = {{DType::kF32, layer.output}};
  tensors.insert(tensors.end(), layer.beside.begin(), layer.beside.end());
  return tensors;
}

std::vector<SampleTensor> GradientTensors(const Layer& layer) {
  std::vector<SampleTensor> tensors = BoundaryTensors(layer);
  std::erase_if(tensors, [](const SampleTensor& tensor) {
    return tensor.dtype != DType::kF32;
  });
  return tensors;
}

std::vector<SampleTensor> InputTensors(const ModelDescription& model,
                                       int first) {
  if (first > 0) return BoundaryTensors(model.layers[first - 1]);
  return {{model.input_dtype, model.input}};
}

bool HasBuffers(const ModelDescription& model) {
  return std::ranges::any_of(model.layers, [](const Layer& layer) {
    return std::ranges::any_of(layer.parameters, &Parameter::is_buffer);
  });
}

bool TrainsBelow(const ModelDescription& model, int layer) {
  return std::any_of(
      model.layers.begin(), model.layers.begin() + layer, [](const Layer& l) {
        return std::ranges::any_of(l.parameters, &Parameter::trainable);
      });
}

std::vector<SharedParameter> SharedParameters(const ModelDescription& model,
                                              bool frozen_too) {
  std::map<std::string, int> owners;
  std::vector<SharedParameter> shared;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    const int index = static_cast<int>(i);
    for (const Parameter& parameter : layer.borrowed) {
      const auto owner = owners.find(parameter.name);
      PACELINE_CHECK(owner != owners.end(), layer.name, " borrows ",
                     parameter.name);
      if (parameter.frozen && !frozen_too) continue;
      shared.push_back({parameter.name, parameter.shape, owner->second, index});
    }
    for (const Parameter& parameter : layer.parameters) {
      owners.emplace(parameter.name, index);
    }
  }
  return shared;
}

bool NeedsWorker(const ModelSpec& spec) {
  return spec.name == kScriptModel && spec.script.layers.empty();
}

std::vector<std::string> ModelNames() {
  return NamesOf(ModelCatalog(),
                 [](const CatalogEntry& entry) { return entry.model.name; });
}

absl::Status CheckLora(const ModelSpec& spec) {
  const LoraSpec& lora = spec.lora;
  PACELINE_RETURN_IF_ERROR(
      CheckModelSize(spec, "lora.rank", lora.rank, kMostRank, 0));
  if (lora.rank == 0) {
    if (lora.targets.empty()) return absl::OkStatus();
    return InvalidArgument(
        "model.lora.targets without model.lora.rank, which is 0: set it to 1 "
        "or more, or leave model.lora out");
  }
  if (!(lora.alpha > 0 && lora.alpha <= 1e6)) {
    return InvalidArgument(
        "model.lora.alpha must be greater than 0 and at most 1000000, got ",
        lora.alpha);
  }
  if (!ModelReads(spec.name, "heads")) {
    return InvalidArgument("model.lora is for transformers, and ", spec.name,
                           " is none; train.only freezes parts of any model");
  }
  if (spec.only != kTrainsAll) {
    return InvalidArgument("train.only is ", spec.only,
                           " beside model.lora, which trains adapters and the "
                           "class head: leave one of them out");
  }
  return absl::OkStatus();
}

std::string WhyNotSkipped(const ModelDescription& model, int64_t block) {
  int blocks = 0;
  for (const Layer& layer : model.layers) {
    blocks = std::max(blocks, layer.block + 1);
  }
  if (blocks == 0) {
    return absl::StrCat(model.name,
                        " has no residual blocks that could be left out");
  }
  if (block < 0 || block >= blocks) {
    return absl::StrCat("is ", block, ", but ", model.name,
                        " has only blocks 0 to ", blocks - 1);
  }
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    if (layer.block != block ||
        (!BeginsWith(layer, "residual_project") &&
         BoundaryTensors(layer) == InputTensors(model, static_cast<int>(i)))) {
      continue;
    }
    return absl::StrCat("is ", block, ", but layer ", layer.name,
                        " gives another shape than it takes, and what follows "
                        "could not do with its input: name a block that keeps "
                        "its shape");
  }
  return "";
}

void SkipBlock(ModelDescription& model, int64_t block) {
  for (Layer& layer : model.layers) {
    if (layer.block != block) continue;
    layer.skipped = true;
    layer.forward_flops = 0;
    layer.activation_bytes = 0;
    for (Parameter& parameter : layer.parameters) {
      parameter.trainable = false;
      parameter.frozen = true;
    }
  }
}

absl::Status SkipBlocksOf(const JobSpec& spec, ModelDescription& model) {
  for (const FaultSpec& fault : spec.faults) {
    if (fault.kind != kSkipStage) continue;
    const std::string why = WhyNotSkipped(model, fault.block);
    if (!why.empty()) return InvalidArgument("block ", why);
    SkipBlock(model, fault.block);
  }
  return absl::OkStatus();
}

bool IsDropped(const TrainSpec& train, int64_t step, int micro_batch,
               int block) {
  if (train.layer_drop <= 0 || block < 0) return false;
  SplitMix64 random(
      MixSeed({kLayerDropStream, static_cast<uint64_t>(train.seed),
               static_cast<uint64_t>(step), static_cast<uint64_t>(micro_batch),
               static_cast<uint64_t>(block)}));
  return random.Unit() < train.layer_drop;
}

std::vector<int> DroppableBlocks(const ModelDescription& model, int first,
                                 int last) {
  std::vector<int> blocks;
  for (int i = first; i < last; ++i) {
    const int block = model.layers[i].block;
    blocks.push_back(WhyNotSkipped(model, block).empty() ? block : -1);
  }
  return blocks;
}

std::string WhyNoLayerDrop(const ModelDescription& model) {
  bool any = false;
  for (const Layer& layer : model.layers) {
    if (layer.block < 0 || !WhyNotSkipped(model, layer.block).empty()) continue;
    any = true;
    if (std::ranges::any_of(layer.parameters, &Parameter::is_buffer)) {
      return absl::StrCat(
          "would leave micro-batches out of the running statistics of ",
          model.name, ": use a model without batch normalisation");
    }
  }
  return any ? ""
             : absl::StrCat("leaves residual blocks out, and ", model.name,
                            " has none that keeps its shape");
}

absl::StatusOr<ModelDescription> DescribeScript(const ModelSpec& spec,
                                                const Shape& input,
                                                int32_t classes) {
  const ScriptModel& script = spec.script;
  if (script.layers.empty()) {
    return FailedPrecondition("no worker has looked into ", spec.file,
                              " yet: its layers are not known");
  }
  if (script.input != input) {
    return InvalidArgument(spec.file, " was described for samples of shape ",
                           ShapeText(script.input), ", data.shape is ",
                           ShapeText(input));
  }
  if (script.layers.size() > kMostLayers) return Impossible("too many layers");
  ModelDescription model;
  model.name = spec.name;
  model.input = input;
  model.classes = classes;
  if (script.vocabulary != 0) {
    if (script.vocabulary < 0) return Impossible("its vocabulary");
    model.input_dtype = DType::kI64;
    model.vocabulary = script.vocabulary;
  }
  model.file = spec.file;
  model.file_sha256 = script.sha256;
  std::set<std::string> layers, parameters;
  for (const ScriptLayer& described : script.layers) {
    if (described.name.empty() || !layers.insert(described.name).second) {
      return Impossible("two layers '", described.name, "'");
    }
    PACELINE_ASSIGN_OR_RETURN(Layer layer,
                              DescribeLayer(described, parameters));
    model.layers.push_back(std::move(layer));
  }
  PACELINE_RETURN_IF_ERROR(DescribeScores(spec.file, model));
  return model;
}

}  // namespace paceline
