#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/chain.h"
#include "core/model/data_sets.h"
#include "core/model/language_sizes.h"
#include "core/model/models.h"

namespace paceline {
namespace {

// From this layer on each adds its input to its output.
constexpr int kFirstResidual = 2;

absl::Status CheckSizes(const ModelSpec& spec, const Shape& input,
                        int32_t tokens) {
  // The first layer of the encoder is twice as wide, and the first of the
  // decoder has no context yet: each has a second one.
  absl::Status sizes = CheckModelSize(spec, "depth", spec.depth, 2, 512);
  sizes.Update(CheckModelSize(spec, "width", spec.width, 1, kLargestSize));
  sizes.Update(
      CheckModelSize(spec, "vocabulary", spec.vocabulary, 1, kMostTokens));
  if (!sizes.ok()) return sizes;
  if (tokens > spec.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.name, " knows ", spec.vocabulary, " tokens, the data set has ",
        tokens, " (data.classes): raise model.vocabulary"));
  }
  if (input.size() != 1 || input[0] % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.name,
        " needs pairs of sentences [2 x block], got samples of shape [",
        absl::StrJoin(input, ", "), "]: use a data set of pairs"));
  }
  return absl::OkStatus();
}

void AddEncoder(const ModelSpec& spec, Chain& chain) {
  const int64_t width = spec.width;
  chain.Begin("encoder.embed")
      .Add({"split_pair", "", {kPaddingToken}})
      .Add({"padded_embedding",
            "encoder.embedder",
            {spec.vocabulary, width, kPaddingToken}});
  for (int i = 0; i < spec.depth; ++i) {
    const bool residual = i >= kFirstResidual;
    chain.Begin(absl::StrCat("encoder.", i));
    if (residual) chain.Add("residual_begin");
    chain.AddDropout(spec.dropout)
        .Add({i == 0 ? "bidirectional_lstm" : "lstm",
              absl::StrCat("encoder.rnn_layers.", i),
              {i == 1 ? 2 * width : width, width}});
    if (residual) chain.Add("residual_end");
  }
}

void AddDecoder(const ModelSpec& spec, Chain& chain) {
  const int64_t width = spec.width;
  chain.Begin("decoder.embed")
      .Add({"take_target", "", {width}})
      .Add({"padded_embedding",
            "decoder.embedder",
            {spec.vocabulary, width, kPaddingToken}});
  chain.Begin("decoder.0")
      .AddDropout(spec.dropout)
      .Add({"lstm", "decoder.att_rnn.rnn", {width, width}});
  chain.Begin("decoder.attention")
      .Add({"additive_attention", "decoder.att_rnn.attn", {width}});
  for (int i = 1; i < spec.depth; ++i) {
    const bool residual = i >= kFirstResidual;
    const bool last = i + 1 == spec.depth;
    chain.Begin(absl::StrCat("decoder.", i));
    if (residual) chain.Add("residual_begin");
    chain.Add({last ? "join_last_context" : "join_context", "", {width}})
        .AddDropout(spec.dropout)
        .Add({"lstm",
              absl::StrCat("decoder.rnn_layers.", i - 1),
              {2 * width, width}});
    if (residual) chain.Add("residual_end");
  }
  chain.Begin("classifier")
      .Add({"score_tokens",
            "decoder.classifier.classifier",
            {width, spec.vocabulary}});
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeGnmt(const ModelSpec& given,
                                              const Shape& input,
                                              int32_t classes) {
  const ModelSpec spec = WithSizesOfData(given, input, classes);
  const absl::Status sizes = CheckSizes(spec, input, classes);
  if (!sizes.ok()) return sizes;
  Chain chain(spec.name, input, spec.vocabulary);
  chain.TakeTokens(spec.vocabulary).LabelTargets();
  AddEncoder(spec, chain);
  AddDecoder(spec, chain);
  return std::move(chain).Build();
}

}  // namespace paceline
