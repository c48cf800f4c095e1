#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/model/chain.h"
#include "core/model/language_sizes.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr int64_t kMlpRatio = 4;
constexpr char kEmbedding[] = "transformer.wte";

// The scores are over the vocabulary, so that every token of the data must be
// in it.
absl::Status CheckVocabulary(const ModelSpec& spec, int32_t tokens) {
  if (tokens <= spec.vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      spec.name, " knows ", spec.vocabulary, " tokens, the data set has ",
      tokens, " (data.classes): raise model.vocabulary"));
}

// Two layers a block: its attention half and its MLP half.
void AddBlock(const ModelSpec& spec, int index, Chain& chain) {
  const std::string layer = absl::StrCat("h.", index);
  const std::string block = absl::StrCat("transformer.h.", index);
  const int64_t width = spec.width;
  chain.Begin(layer + ".attn")
      .Add("residual_begin")
      .Add({"layer_norm_e5", block + ".ln_1", {width}})
      .Add({"causal_attention",
            block + ".attn",
            {width, spec.heads},
            spec.dropout})
      .AddDropout(spec.dropout)
      .Add("residual_end");
  chain.Begin(layer + ".mlp")
      .Add("residual_begin")
      .Add({"layer_norm_e5", block + ".ln_2", {width}})
      .Add({"conv1d", block + ".mlp.c_fc", {width, kMlpRatio * width}})
      .Add("gelu_new")
      .Add({"conv1d", block + ".mlp.c_proj", {kMlpRatio * width, width}})
      .AddDropout(spec.dropout)
      .Add("residual_end");
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeGpt(const ModelSpec& given,
                                             const Shape& input,
                                             int32_t classes) {
  const ModelSpec spec = WithSizesOfData(given, input, classes);
  absl::Status sizes = CheckLanguageSizes(spec, input, /*before=*/0);
  sizes.Update(CheckVocabulary(spec, classes));
  if (!sizes.ok()) return sizes;
  Chain chain(spec.name, input, spec.vocabulary);
  chain.TakeTokens(spec.vocabulary).LabelTokens();
  // Files of old versions have the tied weight twice.
  chain.AddAlias("lm_head.weight", absl::StrCat(kEmbedding, ".weight"));
  chain.Begin("embed")
      .Add({"token_embedding", kEmbedding, {spec.vocabulary, spec.width}})
      .Add({"learned_positions",
            "transformer.wpe",
            {spec.positions, spec.width}})
      .AddDropout(spec.dropout);
  for (int i = 0; i < spec.depth; ++i) AddBlock(spec, i, chain);
  chain.Begin("head")
      .Add({"layer_norm_e5", "transformer.ln_f", {spec.width}})
      .Add({"tied_linear", kEmbedding, {spec.width, spec.vocabulary}});
  return std::move(chain).Build();
}

}  // namespace paceline
