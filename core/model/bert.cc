#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/model/chain.h"
#include "core/model/language_sizes.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr int64_t kMlpRatio = 4;

// In what the two families differ.
struct Family {
  const char* prefix;  // of the encoder's parameters
  const char* norm;    // the kind, by its epsilon
  int64_t types;       // of tokens; all have the first
  int32_t padding;     // the token
  bool masked_positions;
};

constexpr Family kBert = {"bert", "layer_norm_e12", 2, 0, false};
constexpr Family kRoberta = {"roberta", "layer_norm_e5", 1, 1, true};

const Family& FamilyOf(const ModelSpec& spec) {
  return absl::string_view(spec.name).substr(0, 7) == "roberta" ? kRoberta
                                                                : kBert;
}

void AddEmbedding(const ModelSpec& spec, const Family& family, Chain& chain) {
  const std::string prefix = absl::StrCat(family.prefix, ".embeddings.");
  const int64_t width = spec.width;
  chain.Begin("embed")
      .Add({"padding_mask", "", {family.padding}})
      .Add({"padded_embedding",
            prefix + "word_embeddings",
            {spec.vocabulary, width, family.padding}});
  if (family.masked_positions) {
    chain.Add({"masked_positions",
               prefix + "position_embeddings",
               {spec.positions, width, family.padding}});
  } else {
    chain.Add({"learned_positions",
               prefix + "position_embeddings",
               {spec.positions, width}});
  }
  chain
      .Add({"first_type",
            prefix + "token_type_embeddings",
            {family.types, width}})
      .Add({family.norm, prefix + "LayerNorm", {width}})
      .AddDropout(spec.dropout);
}

// Two layers a block: its attention half and its MLP half.  Each normalises
// behind its residual.
void AddBlock(const ModelSpec& spec, const Family& family, int index,
              Chain& chain) {
  const std::string layer = absl::StrCat("layer.", index);
  const std::string block =
      absl::StrCat(family.prefix, ".encoder.layer.", index);
  const int64_t width = spec.width;
  chain.Begin(layer + ".attention")
      .Add("residual_begin")
      .Add({"masked_attention",
            block + ".attention.self",
            {width, spec.heads},
            spec.dropout})
      .Add({"linear", block + ".attention.output.dense", {width, width}})
      .AddDropout(spec.dropout)
      .Add("residual_end")
      .Add({family.norm, block + ".attention.output.LayerNorm", {width}});
  chain.Begin(layer + ".output")
      .Add("residual_begin")
      .Add(
          {"linear", block + ".intermediate.dense", {width, kMlpRatio * width}})
      .Add("gelu")
      .Add({"linear", block + ".output.dense", {kMlpRatio * width, width}})
      .AddDropout(spec.dropout)
      .Add("residual_end")
      .Add({family.norm, block + ".output.LayerNorm", {width}});
}

// From the first token.
void AddHead(const ModelSpec& spec, int32_t classes, Chain& chain) {
  const int64_t width = spec.width;
  chain.Begin("classifier").Add({"take_token", "", {0}});
  if (&FamilyOf(spec) == &kRoberta) {
    chain.AddDropout(spec.dropout)
        .Add({"linear", "classifier.dense", {width, width}})
        .Add("tanh")
        .AddDropout(spec.dropout)
        .Add({"linear", "classifier.out_proj", {width, classes}});
    return;
  }
  chain.Add({"linear", "bert.pooler.dense", {width, width}})
      .Add("tanh")
      .AddDropout(spec.dropout)
      .Add({"linear", "classifier", {width, classes}});
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeBert(const ModelSpec& spec,
                                              const Shape& input,
                                              int32_t classes) {
  const Family& family = FamilyOf(spec);
  const int64_t before = family.masked_positions ? family.padding + 1 : 0;
  const absl::Status sizes = CheckLanguageSizes(spec, input, before);
  if (!sizes.ok()) return sizes;
  if (spec.vocabulary <= family.padding) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.name, ": vocabulary is ", spec.vocabulary, ", need more than ",
        family.padding, ", the number of the token that fills samples up"));
  }
  Chain chain(spec.name, input, classes);
  chain.TakeTokens(spec.vocabulary);
  AddEmbedding(spec, family, chain);
  for (int i = 0; i < spec.depth; ++i) AddBlock(spec, family, i, chain);
  AddHead(spec, classes, chain);
  return std::move(chain).Build();
}

}  // namespace paceline
