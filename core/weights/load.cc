#include "core/weights/load.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/weights/safetensors.h"
#include "core/weights/weights_check.h"

namespace paceline {
namespace {

// The upper half of a float32.
float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of fraction.
float FromF16(uint16_t bits) {
  const float sign = bits >> 15 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 0x1f) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(0x400 | fraction, exponent - 25);
}

Tensor Widened(const Tensor& tensor) {
  if (tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    return tensor;
  }
  Tensor wide = Tensor::Allocate(DType::kF32, tensor.shape);
  const absl::Span<const uint16_t> from = tensor.As<uint16_t>();
  const absl::Span<float> to = wide.As<float>();
  const bool is_bf16 = tensor.dtype == DType::kBF16;
  for (size_t i = 0; i < to.size(); ++i) {
    to[i] = is_bf16 ? FromBf16(from[i]) : FromF16(from[i]);
  }
  return wide;
}

bool IsFinite(const Tensor& tensor) {
  if (tensor.dtype != DType::kF32) return true;  // a whole number
  const absl::Span<const float> values = tensor.As<float>();
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

// The second names of the tensors in `own`, with the first ones.
std::map<std::string, std::string> AliasesOf(const ModelDescription& model,
                                             const std::set<std::string>& own) {
  std::map<std::string, std::string> aliases;
  for (const ModelDescription::Alias& each : model.aliases) {
    if (own.contains(each.name)) aliases[each.alias] = each.name;
  }
  return aliases;
}

// `own`, and the second names that the file has.
std::set<std::string> WithAliases(
    std::set<std::string> own,
    const std::map<std::string, std::string>& aliases,
    const std::vector<TensorPlace>& tensors) {
  for (const TensorPlace& tensor : tensors) {
    if (aliases.contains(tensor.name)) own.insert(tensor.name);
  }
  return own;
}

// Each under its first name: takes out what is there under both, once they are
// seen to be equal.
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
  const std::map<std::string, std::string> aliases = AliasesOf(model, own);
  std::map<std::string, std::string> ours;  // by the file's names
  const auto choose = [&](std::vector<TensorPlace> tensors)
      -> absl::StatusOr<std::set<std::string>> {
    ours = PublishedNames(model, tensors);
    std::set<std::string> theirs;
    for (TensorPlace& tensor : tensors) {
      const auto name = ours.find(tensor.name);
      if (name == ours.end()) continue;
      if (own.contains(name->second) || aliases.contains(name->second)) {
        theirs.insert(tensor.name);
      }
      tensor.name = name->second;
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
    std::set<std::string> wanted = WithAliases(own, aliases, tensors);
    wanted.merge(theirs);
    return wanted;
  };
  auto tensors = ReadSafetensors(spec.weights, choose, &said.metadata);
  if (!tensors.ok()) {
    return tensors.status();
  }
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

}  // namespace paceline
