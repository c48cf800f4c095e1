#include "core/weights/derived.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/model/catalog.h"
#include "core/model/operation.h"

namespace paceline {
namespace {

constexpr int32_t kStepsAGroup = 16;
// Convolutions compute this many channels at once.  Fewer take as long, or
// longer.
constexpr int32_t kBlock = 8;

int32_t StepOf(int32_t units) {
  const int32_t step = std::max(1, units / kStepsAGroup);
  return units < 4 * kBlock ? step : (step + kBlock - 1) / kBlock * kBlock;
}

// Queries, keys and values lie one behind the other in one tensor: three runs
// of heads.  It is the attention's first projection, whose result has them.
int64_t RunsOf(const Operation& before, const Operation& after, size_t axis) {
  const bool of_heads = absl::EndsWith(before.kind, "attention") &&
                        before.sizes[1] != after.sizes[1];
  return of_heads && axis == 0 ? 3 : 1;
}

// The axes whose lengths differ.
std::vector<UnitAxis> ChangedAxes(const ModelDescription& before,
                                  const ModelDescription& after) {
  std::vector<UnitAxis> axes;
  for (size_t i = 0; i < before.layers.size(); ++i) {
    const Layer& layer = before.layers[i];
    const Layer& other = after.layers[i];
    for (size_t p = 0; p < layer.parameters.size(); ++p) {
      const Parameter& parameter = layer.parameters[p];
      const Parameter& changed = other.parameters[p];
      for (size_t axis = 0; axis < parameter.shape.size(); ++axis) {
        if (parameter.shape[axis] == changed.shape[axis]) continue;
        axes.push_back(
            {parameter.name, static_cast<int>(axis),
             RunsOf(OwnerOf(layer, parameter), OwnerOf(other, changed), axis)});
      }
    }
  }
  return axes;
}

// A tensor as [outer, runs, units, inner] elements.
struct UnitView {
  int64_t outer = 1;
  int64_t runs = 1;
  int64_t units = 1;
  int64_t inner = 1;
};

UnitView ViewOf(const UnitAxis& axis, int32_t units, const Shape& shape) {
  const absl::Span<const int64_t> all(shape);
  return {NumElements(all.first(axis.axis)), axis.runs, units,
          shape[axis.axis] / (axis.runs * units) *
              NumElements(all.subspan(axis.axis + 1))};
}

std::map<std::string, Tensor*> ByName(std::vector<NamedTensor>& tensors) {
  std::map<std::string, Tensor*> by_name;
  for (NamedTensor& each : tensors) by_name[each.name] = &each.tensor;
  return by_name;
}

const Tensor& TensorOf(const std::vector<NamedTensor>& tensors,
                       const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  PACELINE_CHECK(found != tensors.end(), name);
  return found->tensor;
}

// For each unit of `group`, the sum over its weights of what `value` says of a
// weight: given the tensor's name and values, and a place in it.
template <typename Value>
std::vector<double> SumsOfUnits(const UnitGroup& group,
                                const std::vector<NamedTensor>& weights,
                                const Value& value) {
  std::vector<double> sums(group.units);
  for (const UnitAxis& axis : group.axes) {
    // Running statistics are no weights.
    if (absl::StrContains(axis.tensor, ".running_")) continue;
    const Tensor& tensor = TensorOf(weights, axis.tensor);
    const UnitView view = ViewOf(axis, group.units, tensor.shape);
    const auto of_weight = value(axis.tensor, tensor.As<float>());
    int64_t at = 0;
    for (int64_t row = 0; row < view.outer * view.runs; ++row) {
      for (int64_t unit = 0; unit < view.units; ++unit) {
        for (int64_t i = 0; i < view.inner; ++i) sums[unit] += of_weight(at++);
      }
    }
  }
  return sums;
}

Tensor WithSlices(const Tensor& tensor, const UnitAxis& axis, int32_t units,
                  const std::vector<int32_t>& kept) {
  const UnitView view = ViewOf(axis, units, tensor.shape);
  Shape shape = tensor.shape;
  shape[axis.axis] =
      shape[axis.axis] / units * static_cast<int64_t>(kept.size());
  Tensor selected = Tensor::Allocate(tensor.dtype, std::move(shape));
  const int64_t bytes = TensorBytes(tensor.dtype, {}) * view.inner;
  uint8_t* to = selected.data.get();
  for (int64_t row = 0; row < view.outer * view.runs; ++row) {
    for (const int32_t unit : kept) {
      std::memcpy(to, tensor.data.get() + (row * units + unit) * bytes, bytes);
      to += bytes;
    }
  }
  return selected;
}

// Units of a group that are still there, and what to remove next.
struct Candidate {
  std::vector<int32_t> order;  // those that matter least first
  std::vector<double> scores;  // by unit; their mean is 1
  int32_t removed = 0;         // of `order`, from the front
  int32_t step = 1;
  int32_t least = 1;

  int32_t left() const { return static_cast<int32_t>(order.size()) - removed; }
  bool CanShrink() const { return left() - step >= least; }
  // The mean of those that the next step would remove.
  double Score() const {
    double sum = 0;
    for (int32_t i = 0; i < step; ++i) sum += scores[order[removed + i]];
    return sum / step;
  }
};

Candidate CandidateOf(std::vector<double> scores) {
  Candidate candidate;
  const auto units = static_cast<int32_t>(scores.size());
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score = sum > 0 ? score * units / sum : 1;
  candidate.order.resize(units);
  std::iota(candidate.order.begin(), candidate.order.end(), 0);
  std::ranges::stable_sort(candidate.order, {},
                           [&](int32_t unit) { return scores[unit]; });
  candidate.scores = std::move(scores);
  candidate.step = StepOf(units);
  candidate.least = static_cast<int32_t>(std::ceil(units * kLeastUnits));
  return candidate;
}

// PEFT wraps a torch.nn.MultiheadAttention as a whole, whose first map has no
// module of its own, and then the second inside.
std::string PeftName(const Operation& operation, const LinearMap& map) {
  if (operation.kind != "multihead_attention") return map.name;
  return absl::StrCat(operation.name, absl::EndsWith(map.name, ".out_proj")
                                          ? ".base_layer.out_proj"
                                          : "");
}

// W + scale B A, the sums in double.
Tensor Merged(const AdaptedMap& map, const Tensor& weight, const Tensor& in,
              const Tensor& out) {
  Tensor merged = Tensor::Allocate(weight.dtype, weight.shape);
  const absl::Span<const float> w = weight.As<float>(), a = in.As<float>(),
                                b = out.As<float>();
  const absl::Span<float> to = merged.As<float>();
  const int64_t rank = in.shape[0], width = in.shape[1], rows = out.shape[0];
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<double> row(width);
    for (int64_t r = 0; r < rank; ++r) {
      const double factor = b[i * rank + r];
      for (int64_t j = 0; j < width; ++j) row[j] += factor * a[r * width + j];
    }
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = map.in_first ? j * rows + i : i * width + j;
      to[at] = static_cast<float>(w[at] + map.scale * row[j]);
    }
  }
  return merged;
}

}  // namespace

absl::Status CheckPrunable(const ModelSpec& spec, double target) {
  if (!(target > 0 && target < 1)) {
    return InvalidArgument(
        "the target must be greater than 0 and less than 1, "
        "the share of the computations that stays; got ",
        target);
  }
  if (ModelReads(spec.name, "sizes")) return absl::OkStatus();
  return InvalidArgument(
      spec.name, spec.name == kScriptModel
                     ? " is a program whose sizes nobody but its author can "
                       "change: prune it where it was made"
                     : " has no units that could leave it: its layers are tied "
                       "or not known to pruning, which is for vit, deit, "
                       "resnet and vgg");
}

absl::StatusOr<std::vector<UnitGroup>> UnitGroupsOf(const ModelSpec& spec,
                                                    const Shape& input,
                                                    int32_t classes) {
  PACELINE_ASSIGN_OR_RETURN(const ModelDescription model,
                            DescribeModel(spec, input, classes));
  std::vector<UnitGroup> groups;
  for (size_t i = 0; i < model.sizes.size(); ++i) {
    groups.push_back({model.sizes[i], {}});
    if (model.sizes[i] == 1) continue;
    ModelSpec smaller = spec;
    smaller.sizes = model.sizes;
    --smaller.sizes[i];
    PACELINE_ASSIGN_OR_RETURN(const ModelDescription other,
                              DescribeModel(smaller, input, classes));
    groups.back().axes = ChangedAxes(model, other);
  }
  return groups;
}

UnitScores ScoresOfWeights(const std::vector<UnitGroup>& groups,
                           const std::vector<NamedTensor>& weights) {
  UnitScores scores;
  for (const UnitGroup& group : groups) {
    scores.push_back(SumsOfUnits(
        group, weights, [](const std::string&, absl::Span<const float> w) {
          return [w](int64_t i) { return double{std::abs(w[i])}; };
        }));
  }
  return scores;
}

void AddScoresOfStep(const std::vector<UnitGroup>& groups,
                     const std::vector<NamedTensor>& weights,
                     const std::vector<NamedTensor>& after,
                     UnitScores& scores) {
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<double> products = SumsOfUnits(
        groups[g], weights,
        [&](const std::string& name, absl::Span<const float> w) {
          const absl::Span<const float> v = TensorOf(after, name).As<float>();
          return [w, v](int64_t i) { return double{w[i]} * (w[i] - v[i]); };
        });
    scores[g].resize(products.size());
    for (size_t unit = 0; unit < products.size(); ++unit) {
      scores[g][unit] += products[unit] * products[unit];
    }
  }
}

std::vector<NamedTensor> WithUnits(const UnitGroup& group,
                                   const std::vector<int32_t>& kept,
                                   std::vector<NamedTensor> weights) {
  const std::map<std::string, Tensor*> by_name = ByName(weights);
  for (const UnitAxis& axis : group.axes) {
    Tensor& tensor = *by_name.at(axis.tensor);
    tensor = WithSlices(tensor, axis, group.units, kept);
  }
  return weights;
}

double FlopsOf(const ModelDescription& model) {
  double flops = 0;
  for (const Layer& layer : model.layers) flops += layer.forward_flops;
  return flops;
}

absl::StatusOr<PrunedModel> Prune(const ModelSpec& spec, const Shape& input,
                                  int32_t classes,
                                  const std::vector<NamedTensor>& weights,
                                  UnitScores scores, double target) {
  PACELINE_RETURN_IF_ERROR(CheckPrunable(spec, target));
  PACELINE_ASSIGN_OR_RETURN(const std::vector<UnitGroup> groups,
                            UnitGroupsOf(spec, input, classes));
  std::vector<Candidate> candidates;
  for (std::vector<double>& of_group : scores) {
    candidates.push_back(CandidateOf(std::move(of_group)));
  }
  PrunedModel pruned = {.model = {}, .weights = weights};
  PACELINE_ASSIGN_OR_RETURN(pruned.model, DescribeModel(spec, input, classes));
  const double whole = FlopsOf(pruned.model);
  ModelSpec smaller = spec;
  smaller.sizes = pruned.model.sizes;
  while (FlopsOf(pruned.model) > target * whole) {
    const auto next = std::ranges::min_element(
        candidates, [](const Candidate& a, const Candidate& b) {
          if (a.CanShrink() != b.CanShrink()) return a.CanShrink();
          return a.CanShrink() && a.Score() < b.Score();
        });
    if (!next->CanShrink()) {
      return InvalidArgument("nothing would be left of ", spec.name,
                             ": with an eighth of each "
                             "group's units it still computes ",
                             FlopsOf(pruned.model) / whole,
                             " of what it does now, and the target is ", target,
                             ": choose a greater one");
    }
    next->removed += next->step;
    smaller.sizes[next - candidates.begin()] = next->left();
    PACELINE_ASSIGN_OR_RETURN(pruned.model,
                              DescribeModel(smaller, input, classes));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    std::vector<int32_t> kept(
        candidates[i].order.begin() + candidates[i].removed,
        candidates[i].order.end());
    std::ranges::sort(kept);
    pruned.weights = WithUnits(groups[i], kept, std::move(pruned.weights));
  }
  return pruned;
}

std::vector<AdaptedMap> AdaptedMapsOf(const ModelDescription& model) {
  std::vector<AdaptedMap> maps;
  for (const Layer& layer : model.layers) {
    for (const Operation& operation : layer.operations) {
      const auto& [beside, rank, scale] = operation.adapters;
      std::vector<Parameter> own;
      std::ranges::copy_if(layer.parameters, std::back_inserter(own),
                           [&](const Parameter& parameter) {
                             return Owns(operation, parameter);
                           });
      for (const LinearMap& map : LinearMapsOf(operation, own)) {
        if (std::ranges::find(beside, map.weight) == beside.end()) {
          continue;
        }
        maps.push_back({PeftName(operation, map), own[map.weight].name,
                        absl::StrCat(map.name, kAdapterIn),
                        absl::StrCat(map.name, kAdapterOut), map.in_first,
                        scale});
      }
    }
  }
  return maps;
}

absl::StatusOr<std::vector<NamedTensor>> MergeAdapters(
    const ModelDescription& model, std::vector<NamedTensor> weights) {
  std::map<std::string, Tensor*> by_name = ByName(weights);
  for (const AdaptedMap& map : AdaptedMapsOf(model)) {
    for (const std::string& name : {map.weight, map.in, map.out}) {
      if (by_name.contains(name)) continue;
      return InvalidArgument("there is no tensor ", name);
    }
    Tensor& weight = *by_name[map.weight];
    weight = Merged(map, weight, *by_name[map.in], *by_name[map.out]);
  }
  std::erase_if(weights, [](const NamedTensor& each) {
    return IsOfAdapter({each.name, each.tensor.shape});
  });
  return weights;
}

std::vector<NamedTensor> PeftTensors(const ModelDescription& model,
                                     const std::vector<NamedTensor>& weights) {
  constexpr char kModel[] = "base_model.model.";
  std::map<std::string, std::string> names;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.trainable) names[parameter.name] = parameter.name;
    }
  }
  for (const AdaptedMap& map : AdaptedMapsOf(model)) {
    names[map.in] = absl::StrCat(map.peft_name, kAdapterIn);
    names[map.out] = absl::StrCat(map.peft_name, kAdapterOut);
  }
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& each : weights) {
    const auto name = names.find(each.name);
    if (name == names.end()) continue;
    tensors.push_back({absl::StrCat(kModel, name->second), each.tensor});
  }
  return tensors;
}

}  // namespace paceline
