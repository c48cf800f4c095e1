#include "core/model/stage_drop.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/random.h"

namespace paceline {
namespace {

constexpr uint64_t kLayerDropStream = 0x6c647270;  // "ldrp"

bool HasAttention(const Layer& layer) {
  return std::any_of(layer.operations.begin(), layer.operations.end(),
                     [](const Operation& operation) {
                       return absl::EndsWith(operation.kind, "attention");
                     });
}

bool BeginsWith(const Layer& layer, const char* kind) {
  return !layer.operations.empty() && layer.operations.front().kind == kind;
}

int64_t BlockCount(const ModelDescription& model) {
  int last = -1;
  for (const Layer& layer : model.layers) last = std::max(last, layer.block);
  return last + 1;
}

}  // namespace

void NumberBlocks(ModelDescription& model) {
  int last = -1;
  bool half = false;  // the layer before is the first one of a block
  for (Layer& layer : model.layers) {
    const bool residual = BeginsWith(layer, "residual_begin") ||
                          BeginsWith(layer, "residual_project");
    if (residual) layer.block = half ? last : ++last;
    half = residual && HasAttention(layer);
  }
}

std::string WhyNotSkipped(const ModelDescription& model, int64_t block) {
  const int64_t blocks = BlockCount(model);
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
    if (std::any_of(layer.parameters.begin(), layer.parameters.end(),
                    [](const Parameter& each) {
                      return !each.trainable && !each.frozen;
                    })) {
      return absl::StrCat(
          "would leave micro-batches out of the running statistics of ",
          model.name, ": use a model without batch normalisation");
    }
  }
  return any ? ""
             : absl::StrCat("leaves residual blocks out, and ", model.name,
                            " has none that keeps its shape");
}

}  // namespace paceline
