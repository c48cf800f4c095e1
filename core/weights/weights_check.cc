#include "core/weights/weights_check.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/utf8.h"
#include "core/model/operation.h"

namespace paceline {
namespace {

// The part before the scores has one of these names.
constexpr absl::string_view kTrunks[] = {"transformer.", "bert.", "roberta."};
// Training scripts save a model inside of these: of DataParallel, of Lightning.
constexpr absl::string_view kWrappers[] = {"module.", "model."};

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

// `name` without what torch.compile and wrappers put before it.
std::string Unwrapped(absl::string_view name) {
  std::string bare = absl::StrReplaceAll(name, {{"_orig_mod.", ""}});
  absl::string_view rest = bare;
  while (std::any_of(std::begin(kWrappers), std::end(kWrappers),
                     [&](absl::string_view wrapper) {
                       return absl::ConsumePrefix(&rest, wrapper);
                     })) {
  }
  return std::string(rest);
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
    const std::string plain = WithoutTensorFlow(Unwrapped(tensor.name));
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

namespace {

constexpr size_t kMostNamesShown = 3;
constexpr size_t kMostBytesShown = 200;  // of a name and what is wrong with it

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The differences between a file and a model, by kind.
struct Differences {
  std::vector<std::string> missing;
  std::vector<std::string> unknown;
  std::vector<std::string> shapes;
  std::vector<std::string> dtypes;
  bool only_head = true;  // all of them are the head's
};

void Compare(const Parameter& parameter, const TensorPlace& tensor,
             Differences& differences) {
  if (tensor.shape != parameter.shape) {
    differences.shapes.push_back(
        absl::StrCat(parameter.name, " ", ShapeText(tensor.shape), ", need ",
                     ShapeText(parameter.shape)));
  } else if (!Converts(tensor.dtype, parameter.dtype)) {
    differences.dtypes.push_back(
        absl::StrCat(parameter.name, " ", std::string(DTypeName(tensor.dtype)),
                     ", need ", std::string(DTypeName(parameter.dtype))));
  }
}

size_t Count(const Differences& differences) {
  return differences.missing.size() + differences.unknown.size() +
         differences.shapes.size() + differences.dtypes.size();
}

// Null when the model has none of that name.
const Parameter* FindParameter(const ModelDescription& model,
                               const std::string& name) {
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.name == name) return &parameter;
    }
  }
  return nullptr;
}

// Under a second name: who writes a shared tensor once may choose either.
bool HasAliasOf(const ModelDescription& model,
                const std::map<std::string, const TensorPlace*>& tensors,
                const std::string& parameter) {
  return std::any_of(model.aliases.begin(), model.aliases.end(),
                     [&](const ModelDescription::Alias& each) {
                       return each.name == parameter &&
                              tensors.contains(each.alias);
                     });
}

// Whether a tensor that the model has no parameter for is one of those that
// Hugging Face's models kept in their files until 2023 though nobody ever
// changes them: causal masks, and the numbers of positions.  They are not read.
bool IsConstant(const std::string& name) {
  for (const char* const each :
       {".attn.bias", ".attn.masked_bias", ".embeddings.position_ids",
        ".embeddings.token_type_ids"}) {
    if (absl::EndsWith(name, each)) return true;
  }
  return false;
}

Differences Find(const ModelDescription& model,
                 const std::vector<TensorPlace>& tensors, bool reset_head) {
  std::map<std::string, const TensorPlace*> unclaimed;
  for (const TensorPlace& tensor : tensors) unclaimed[tensor.name] = &tensor;
  Differences differences;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      const auto node = unclaimed.extract(parameter.name);
      const bool is_head =
          IsHead(model, parameter.name) ||
          (node.empty() && IsBehindEncoder(model, parameter.name));
      if (reset_head && is_head) continue;
      const size_t before = Count(differences);
      if (!node.empty()) {
        Compare(parameter, *node.mapped(), differences);
      } else if (!IsOptional(parameter) &&
                 !HasAliasOf(model, unclaimed, parameter.name)) {
        differences.missing.push_back(parameter.name);
      }
      if (Count(differences) > before && !is_head) {
        differences.only_head = false;
      }
    }
  }
  for (const ModelDescription::Alias& alias : model.aliases) {
    const auto node = unclaimed.extract(alias.alias);
    const Parameter* const parameter = FindParameter(model, alias.name);
    if (node.empty() || parameter == nullptr) continue;
    Parameter second = *parameter;
    second.name = alias.alias;
    const size_t before = Count(differences);
    Compare(second, *node.mapped(), differences);
    if (Count(differences) > before) differences.only_head = false;
  }
  for (const auto& [name, tensor] : unclaimed) {
    if (IsConstant(name)) continue;
    const bool of_head = IsOfAnotherHead(model, name);
    if (of_head && reset_head) continue;
    differences.unknown.push_back(name);
    if (!of_head) differences.only_head = false;
  }
  return differences;
}

void Add(const char* what, const std::vector<std::string>& names,
         std::vector<std::string>& parts) {
  if (names.empty()) return;
  const size_t shown = std::min(names.size(), kMostNamesShown);
  std::string part = absl::StrCat(
      names.size(), " ", what, ": ",
      absl::StrJoin(names.begin(), names.begin() + shown, "; ",
                    [](std::string* out, const std::string& name) {
                      absl::StrAppend(out, ToUtf8(name, kMostBytesShown));
                    }));
  if (names.size() > shown) {
    absl::StrAppend(&part, " and ", names.size() - shown, " more");
  }
  parts.push_back(std::move(part));
}

}  // namespace

bool IsHead(const ModelDescription& model, const std::string& parameter) {
  const Layer& last = model.layers.back();
  const std::string& head = last.operations.back().name;
  return !head.empty() && last.borrowed.empty() &&
         absl::StartsWith(parameter, head + ".");
}

bool IsOptional(const Parameter& parameter) {
  return absl::EndsWith(parameter.name, ".num_batches_tracked") ||
         IsOfAdapter(parameter);
}

bool Converts(DType from, DType to) {
  return from == to ||
         (to == DType::kF32 && (from == DType::kBF16 || from == DType::kF16));
}

absl::Status CheckWeights(const ModelDescription& model,
                          const std::vector<TensorPlace>& tensors,
                          bool reset_head) {
  const Differences differences = Find(model, tensors, reset_head);
  if (Count(differences) == 0) return absl::OkStatus();
  std::vector<std::string> parts;
  Add("missing", differences.missing, parts);
  Add("that the model does not have", differences.unknown, parts);
  Add("of another shape", differences.shapes, parts);
  Add("of another dtype", differences.dtypes, parts);
  const char* const remedy =
      differences.only_head ? ".  All of them belong to the class head: "
                              "model.reset_head: true starts with a new one"
      : differences.shapes.empty()
          ? ""
          : ".  A file that was pruned needs its model.sizes: 'paceline model "
            "inspect' shows them";
  return InvalidArgument("the tensors are not those of ", model.name, " with ",
                         model.classes,
                         " classes: ", absl::StrJoin(parts, ".  "), remedy);
}

}  // namespace paceline
