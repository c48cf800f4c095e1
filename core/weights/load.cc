#include "core/weights/load.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/model/operation.h"
#include "core/transfer/tensor_codec.h"
#include "core/weights/safetensors.h"

namespace paceline {
namespace {

// Short floats as float32; other tensors as they are.
Tensor Widened(const Tensor& tensor) {
  if (tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    return tensor;
  }
  Tensor wide = Tensor::Allocate(DType::kF32, tensor.shape);
  Decode(tensor.dtype == DType::kBF16 ? Codec::kBf16 : Codec::kF16,
         absl::MakeConstSpan(tensor.data.get(), tensor.bytes()), wide);
  return wide;
}

bool IsFinite(const Tensor& tensor) {
  if (tensor.dtype != DType::kF32) return true;  // a whole number
  const absl::Span<const float> values = tensor.As<float>();
  return std::ranges::all_of(values,
                             [](float value) { return std::isfinite(value); });
}

// Gives each tensor its first name.  Of a tensor that is there under two names
// it drops one, after it has compared them.
absl::StatusOr<std::vector<NamedTensor>> WithoutAliases(
    const std::string& file, const std::map<std::string, std::string>& aliases,
    std::vector<NamedTensor> tensors) {
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& named : tensors) by_name[named.name] = &named.tensor;
  for (const auto& [alias, name] : aliases) {
    if (!by_name.contains(alias) || !by_name.contains(name)) continue;
    const Tensor& second = *by_name[alias];
    const Tensor& first = *by_name[name];
    if (std::memcmp(second.data.get(), first.data.get(), first.bytes()) != 0) {
      return InvalidArgument(file, ": ", alias, " and ", name,
                             " differ, but this model computes with one tensor "
                             "for both: train that file elsewhere, or leave ",
                             alias, " out");
    }
  }
  std::set<std::string> there;
  for (const NamedTensor& named : tensors) there.insert(named.name);
  for (NamedTensor& named : tensors) {
    const auto alias = aliases.find(named.name);
    if (alias == aliases.end()) continue;
    // The first of some second names.
    if (there.insert(alias->second).second) named.name = alias->second;
  }
  std::erase_if(tensors, [&](const NamedTensor& named) {
    return aliases.contains(named.name);
  });
  return tensors;
}

// Large models are published in several files, each with some of the tensors:
// "model-00001-of-00003.safetensors".  Empty: not so `path`.
std::string ShardText(const std::string& path) {
  const size_t of = path.rfind("-of-");
  int shards = 0;
  if (of == std::string::npos ||
      !absl::SimpleAtoi(path.substr(of + 4, path.rfind('.') - of - 4),
                        &shards) ||
      shards < 2) {
    return "";
  }
  return absl::StrCat(
      ".  By its name it is one shard of ", shards,
      " of a larger file: join them, by load_file of each and one save_file "
      "of safetensors.torch");
}

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
  while (std::ranges::any_of(kWrappers, [&](absl::string_view wrapper) {
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

// Whether `parameter` is a text classifier's that lies between its encoder and
// its class scores: published encoders do not have it, fine-tuned models do.
bool IsBehindEncoder(const ModelDescription& model,
                     const std::string& parameter) {
  if (!IsTextClassifier(model)) return false;
  const std::vector<Parameter>& last = model.layers.back().parameters;
  return std::ranges::find(last, parameter, &Parameter::name) != last.end();
}

// Whether a tensor that a text classifier has no parameter for belongs to what
// an encoder is trained for first: to guess words and the order of sentences.
bool IsOfAnotherHead(const ModelDescription& model, const std::string& tensor) {
  if (!IsTextClassifier(model)) return false;
  for (const absl::string_view part :
       {"cls.", "lm_head.", "pooler.", "roberta.pooler."}) {
    if (absl::StartsWith(tensor, part)) return true;
  }
  return false;
}

// Whether a file may go without it: a count that no computation looks at, and
// that weights written by old libraries do not have; or an adapter.
bool IsOptional(const Parameter& parameter) {
  return absl::EndsWith(parameter.name, ".num_batches_tracked") ||
         IsOfAdapter(parameter);
}

constexpr size_t kMostNamesShown = 3;
constexpr size_t kMostBytesShown = 200;  // of a name and what is wrong with it

// The differences between a file and a model, by kind.
struct Differences {
  std::vector<std::string> missing;
  std::vector<std::string> unknown;
  std::vector<std::string> shapes;
  std::vector<std::string> dtypes;
  bool only_head = true;  // all of them are the head's
};

// Whether tensors of `from` can be read as values of `to` without loss: equal
// ones, and the shorter floats as float32.
bool Converts(DType from, DType to) {
  return from == to ||
         (to == DType::kF32 && (from == DType::kBF16 || from == DType::kF16));
}

void Compare(const Parameter& parameter, const TensorPlace& tensor,
             Differences& differences) {
  if (tensor.shape != parameter.shape) {
    differences.shapes.push_back(
        absl::StrCat(parameter.name, " ", ShapeText(tensor.shape), ", need ",
                     ShapeText(parameter.shape)));
  } else if (!Converts(tensor.dtype, parameter.dtype)) {
    differences.dtypes.push_back(
        absl::StrCat(parameter.name, " ", DTypeName(tensor.dtype), ", need ",
                     DTypeName(parameter.dtype)));
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

// Whether the file has the parameter under a second name: a writer that writes
// a shared tensor once may choose either name.
bool HasAliasOf(const ModelDescription& model,
                const std::map<std::string, const TensorPlace*>& tensors,
                const std::string& parameter) {
  return std::ranges::any_of(
      model.aliases, [&](const ModelDescription::Alias& each) {
        return each.name == parameter && tensors.contains(each.alias);
      });
}

// Whether a tensor that the model has no parameter for is one of those that
// Hugging Face's models kept in their files until 2023 though they never
// change: causal masks, and the numbers of positions.  They are not read.
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

absl::StatusOr<std::vector<NamedTensor>> LoadWeights(
    const ModelSpec& spec, const ModelDescription& model,
    const LayerRange& layers, WeightsOrigin* origin) {
  WeightsOrigin unread;
  WeightsOrigin& said = origin == nullptr ? unread : *origin;
  said = WeightsOrigin();
  std::set<std::string> own;
  for (int i = layers.first; i < layers.last; ++i) {
    for (const Parameter& parameter : model.layers[i].parameters) {
      if (spec.reset_head && IsHead(model, parameter.name)) continue;
      own.insert(parameter.name);
    }
    for (const Parameter& parameter : model.layers[i].borrowed) {
      own.insert(parameter.name);
    }
  }
  std::map<std::string, std::string> aliases;  // second names of these
  for (const ModelDescription::Alias& each : model.aliases) {
    if (own.contains(each.name)) aliases[each.alias] = each.name;
  }
  std::map<std::string, std::string> ours;  // by the file's names
  const auto choose = [&](std::vector<TensorPlace> tensors)
      -> absl::StatusOr<std::set<std::string>> {
    ours = PublishedNames(model, tensors);
    std::set<std::string> wanted = own;
    for (TensorPlace& tensor : tensors) {
      const std::string theirs = tensor.name;
      const auto name = ours.find(theirs);
      if (name != ours.end()) tensor.name = name->second;
      if (own.contains(tensor.name) || aliases.contains(tensor.name)) {
        wanted.insert(theirs);
      }
    }
    absl::Status fits = CheckWeights(model, tensors, spec.reset_head);
    if (!fits.ok()) {
      return InvalidArgument(spec.weights, ": ", fits.message(),
                             ShardText(spec.weights));
    }
    fits = CheckMadeWith(said.metadata, model.made_with, spec.reset_head,
                         said.notes);
    if (!fits.ok()) return InvalidArgument(spec.weights, ": ", fits.message());
    for (std::string& note : said.notes) {
      note = absl::StrCat(spec.weights, ": ", note);
    }
    return wanted;
  };
  auto tensors = ReadSafetensors(spec.weights, choose, &said.metadata);
  if (!tensors.ok()) return tensors.status();
  for (NamedTensor& named : *tensors) {
    named.tensor = Widened(named.tensor);
    if (!IsFinite(named.tensor)) {
      return InvalidArgument(
          spec.weights, ": ", named.name,
          " holds NaN or infinity: take weights from before that happened");
    }
    const auto name = ours.find(named.name);
    if (name != ours.end()) named.name = name->second;
  }
  return WithoutAliases(spec.weights, aliases, std::move(*tensors));
}

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

bool IsHead(const ModelDescription& model, const std::string& parameter) {
  const Layer& last = model.layers.back();
  const std::string& head = last.operations.back().name;
  return !head.empty() && last.borrowed.empty() &&
         absl::StartsWith(parameter, head + ".");
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
