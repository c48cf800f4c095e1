#include "core/model/published_names.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace paceline {
namespace {

// Of the part before the scores.
constexpr absl::string_view kTrunks[] = {"transformer.", "bert.", "roberta."};

std::set<std::string> NamesOf(const ModelDescription& model) {
  std::set<std::string> names;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      names.insert(parameter.name);
    }
  }
  for (const ModelDescription::Alias& alias : model.aliases) {
    names.insert(alias.alias);
  }
  return names;
}

// Its last layer begins with a token that stands for the whole text.
bool IsTextClassifier(const ModelDescription& model) {
  return model.input_dtype == DType::kI64 &&
         model.layers.back().operations.front().kind == "take_token";
}

std::string WithoutTensorFlow(absl::string_view name) {
  for (const auto& [theirs, ours] :
       {std::pair<absl::string_view, absl::string_view>{"LayerNorm.gamma",
                                                        "LayerNorm.weight"},
        {"LayerNorm.beta", "LayerNorm.bias"}}) {
    if (absl::EndsWith(name, theirs)) {
      return absl::StrCat(name.substr(0, name.size() - theirs.size()), ours);
    }
  }
  return std::string(name);
}

}  // namespace

std::map<std::string, std::string> PublishedNames(
    const ModelDescription& model, const std::vector<TensorPlace>& tensors) {
  const std::set<std::string> known = NamesOf(model);
  std::set<std::string> taken;
  for (const TensorPlace& tensor : tensors) taken.insert(tensor.name);
  std::map<std::string, std::string> names;
  for (const TensorPlace& tensor : tensors) {
    if (known.contains(tensor.name)) continue;
    const std::string plain = WithoutTensorFlow(tensor.name);
    std::vector<std::string> candidates = {plain};
    for (const absl::string_view trunk : kTrunks) {
      candidates.push_back(absl::StrCat(trunk, plain));
    }
    for (std::string& name : candidates) {
      if (!known.contains(name) || !taken.insert(name).second) continue;
      names[tensor.name] = std::move(name);
      break;
    }
  }
  return names;
}

bool IsBehindEncoder(const ModelDescription& model,
                     const std::string& parameter) {
  if (!IsTextClassifier(model)) return false;
  const std::vector<Parameter>& last = model.layers.back().parameters;
  return std::any_of(last.begin(), last.end(), [&](const Parameter& each) {
    return each.name == parameter;
  });
}

bool IsOfAnotherHead(const ModelDescription& model, const std::string& tensor) {
  if (!IsTextClassifier(model)) return false;
  for (const absl::string_view part :
       {"cls.", "lm_head.", "pooler.", "roberta.pooler."}) {
    if (absl::StartsWith(tensor, part)) return true;
  }
  return false;
}

}  // namespace paceline
