#include "core/model/chain.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr int64_t kFloatBytes = 4;

int64_t OutputBytes(const Layer& layer) {
  int64_t bytes = 0;
  for (const SampleTensor& tensor : BoundaryTensors(layer)) {
    bytes += TensorBytes(tensor.dtype, tensor.shape);
  }
  return bytes;
}

// Drops `taken` from the end of `beside`; false when something else is there.
bool Take(const std::vector<SampleTensor>& taken,
          std::vector<SampleTensor>& beside) {
  if (taken.size() > beside.size() ||
      !std::equal(taken.rbegin(), taken.rend(), beside.rbegin())) {
    return false;
  }
  beside.resize(beside.size() - taken.size());
  return true;
}

}  // namespace

Chain::Chain(std::string model, Shape input, int32_t classes) : shape_(input) {
  model_.name = std::move(model);
  model_.input = std::move(input);
  model_.classes = classes;
}

Chain& Chain::TakeTokens(int64_t vocabulary, Shape labels) {
  model_.input_dtype = DType::kI64;
  model_.vocabulary = vocabulary;
  model_.label_shape = std::move(labels);
  return *this;
}

Chain& Chain::AddAlias(std::string alias, std::string name) {
  model_.aliases.push_back({std::move(alias), std::move(name)});
  return *this;
}

Chain& Chain::Adapt(const LoraSpec& lora, std::string head) {
  lora_ = lora;
  model_.head = std::move(head);
  return *this;
}

void Chain::FindTargets(const OperationFacts& facts, Operation& operation) {
  static const std::vector<std::string> attention = {"query", "value", "qkv",
                                                     "c_attn", "in_proj"};
  for (const LinearMap& map : LinearMapsOf(operation, facts.parameters)) {
    if (absl::StartsWith(map.name + ".", model_.head + ".")) continue;
    maps_.insert(map.name.substr(map.name.rfind('.') + 1));
    for (const std::string& target :
         lora_.targets.empty() ? attention : lora_.targets) {
      if (!absl::EndsWith("." + map.name, "." + target)) continue;
      targets_.insert(target);
      std::vector<int>& beside = operation.adapters.beside;
      if (beside.empty() || beside.back() != map.weight) {
        beside.push_back(map.weight);
      }
    }
  }
  operation.adapters.rank = lora_.rank;
  operation.adapters.scale = lora_.alpha / std::max(1, lora_.rank);
}

Chain& Chain::Resize(std::vector<int32_t> sizes) {
  sizes_ = std::move(sizes);
  return *this;
}

int64_t Chain::Size(int64_t full) {
  const size_t at = model_.sizes.size();
  model_.sizes.push_back(static_cast<int32_t>(full));
  if (at >= sizes_.size()) return full;
  if (sizes_[at] < 1 || sizes_[at] > full) {
    status_.Update(InvalidArgument("model.sizes: number ", at + 1,
                                   " must be from 1 to ", full, ", got ",
                                   sizes_[at]));
    return full;
  }
  return model_.sizes[at] = sizes_[at];
}

Chain& Chain::Begin(std::string layer) {
  Layer next;
  next.name = std::move(layer);
  next.output = shape_;
  if (!model_.layers.empty()) next.beside = model_.layers.back().beside;
  next.output_bytes = OutputBytes(next);
  // Its input is kept.
  next.activation_bytes = model_.layers.empty()
                              ? TensorBytes(model_.input_dtype, shape_)
                              : next.output_bytes;
  model_.layers.push_back(std::move(next));
  return *this;
}

Chain& Chain::Add(std::string kind, std::string name,
                  std::vector<int64_t> sizes, double probability) {
  PACELINE_CHECK(!model_.layers.empty(), "Begin() comes before Add()");
  if (!status_.ok()) return *this;
  Operation operation = {std::move(kind), std::move(name), std::move(sizes),
                         probability};
  absl::StatusOr<OperationFacts> facts = ExamineOperation(operation, shape_);
  if (facts.ok() && lora_.rank > 0) {
    FindTargets(*facts, operation);
    facts = ExamineOperation(operation, shape_);
  }
  if (!facts.ok()) {
    status_ = facts.status();
    return *this;
  }
  Layer& layer = model_.layers.back();
  if (!Take(facts->taken, layer.beside)) {
    status_ = InvalidArgument(layer.name, ": ", operation.kind,
                              " takes what does not go beside its input");
    return *this;
  }
  shape_ = std::move(facts->output);
  layer.output = shape_;
  layer.beside.insert(layer.beside.end(), facts->beside.begin(),
                      facts->beside.end());
  layer.output_bytes = OutputBytes(layer);
  const bool in_place = !layer.operations.empty() &&
                        IsInPlace(operation, layer.operations.back());
  if (!in_place) layer.activation_bytes += facts->kept_elements * kFloatBytes;
  layer.forward_flops += facts->flops;
  for (Parameter& parameter : facts->parameters) {
    layer.parameter_bytes += TensorBytes(parameter.dtype, parameter.shape);
    layer.parameters.push_back(std::move(parameter));
  }
  for (Parameter& parameter : facts->borrowed) {
    layer.borrowed_bytes += TensorBytes(parameter.dtype, parameter.shape);
    layer.borrowed.push_back(std::move(parameter));
  }
  layer.operations.push_back(std::move(operation));
  return *this;
}

Chain& Chain::AddDropout(double probability) {
  if (probability == 0) return *this;
  return Add("dropout", "", {}, probability);
}

absl::StatusOr<ModelDescription> Chain::Build() && {
  if (!status_.ok()) return status_;
  if (!sizes_.empty() && sizes_.size() != model_.sizes.size()) {
    return InvalidArgument("model.sizes has ", sizes_.size(), " numbers, but ",
                           model_.name, " has ", model_.sizes.size(),
                           " groups of units: take what 'paceline model prune' "
                           "printed, with the other sizes of that job");
  }
  for (const std::string& target : lora_.targets) {
    if (targets_.contains(target)) continue;
    return InvalidArgument(
        "model.lora.targets has '", absl::CHexEscape(target),
        "', but no linear map of ", model_.name,
        " is called so; there are: ", absl::StrJoin(maps_, ", "));
  }
  Shape scores = model_.label_shape;
  scores.push_back(model_.classes);
  if (shape_ != scores) {
    return InvalidArgument(model_.name, " ends with shape ", ShapeText(shape_),
                           ", need ", ShapeText(scores), ": one score a class");
  }
  return std::move(model_);
}

absl::Status CheckModelSize(const ModelSpec& spec, const char* what,
                            int64_t value, int64_t most, int64_t least) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument(spec.name, ": ", what, " must be from ", least, " to ",
                         most, ", got ", value);
}

absl::Status CheckImages(const ModelSpec& spec, const Shape& input,
                         int64_t edge) {
  if (input.size() == 3 && std::min(input[1], input[2]) >= edge) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      spec.name, " needs images [channels, height, width] of at least ", edge,
      " x ", edge, " pixels, got shape ", ShapeText(input));
}

}  // namespace paceline
