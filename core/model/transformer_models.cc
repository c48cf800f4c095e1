#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/data/data_sets.h"
#include "core/model/chain.h"

namespace paceline {
namespace {

constexpr int32_t kMostDepth = 512;
constexpr int64_t kMlpRatio = 4;
// The most tokens that a model knows, or a sample has.
constexpr int64_t kMostTokens = 1 << 20;

// `spec` with the sizes that it leaves to the data filled in: positions by
// those of a sample, vocabulary by `tokens`, how many different ones there are.
ModelSpec WithSizesOfData(ModelSpec spec, const Shape& input, int64_t tokens) {
  if (spec.positions == 0 && input.size() == 1 && input[0] <= kMostTokens) {
    spec.positions = static_cast<int32_t>(input[0]);
  }
  if (spec.vocabulary == 0 && tokens <= kMostTokens) {
    spec.vocabulary = static_cast<int32_t>(tokens);
  }
  return spec;
}

// Depth, width and heads in range, and heads that divide the width.
absl::Status CheckBlockSizes(const ModelSpec& spec) {
  absl::Status status = CheckModelSize(spec, "depth", spec.depth, kMostDepth);
  status.Update(CheckModelSize(spec, "width", spec.width, kLargestSize));
  status.Update(CheckModelSize(spec, "heads", spec.heads, kLargestSize));
  if (!status.ok() || spec.width % spec.heads == 0) return status;
  return InvalidArgument(spec.name, ": heads must divide width, got heads ",
                         spec.heads, " and width ", spec.width);
}

// The scores are over the vocabulary, so that every token of the data must be
// in it.
absl::Status CheckVocabulary(const ModelSpec& spec, int32_t tokens) {
  if (tokens <= spec.vocabulary) return absl::OkStatus();
  return InvalidArgument(spec.name, " knows ", spec.vocabulary,
                         " tokens, the data set has ", tokens,
                         " (data.classes): raise model.vocabulary");
}

// Depth, width, heads, positions and vocabulary in range, and a sample of
// tokens [block] for which there are positions.
//   before  positions that no token has, before the first one's
absl::Status CheckLanguageSizes(const ModelSpec& spec, const Shape& input,
                                int64_t before) {
  absl::Status status = CheckBlockSizes(spec);
  status.Update(CheckModelSize(spec, "positions", spec.positions, kMostTokens));
  status.Update(
      CheckModelSize(spec, "vocabulary", spec.vocabulary, kMostTokens));
  if (!status.ok()) return status;
  if (input.size() != 1) {
    return InvalidArgument(spec.name,
                           " needs tokens [block], got samples of shape ",
                           ShapeText(input));
  }
  if (input[0] > spec.positions - before) {
    return InvalidArgument(spec.name, " has positions for samples of at most ",
                           spec.positions - before, " tokens, got ", input[0],
                           ": lower data.block, or raise model.positions");
  }
  return absl::OkStatus();
}

// A library calls the parameters of this model so.  Names that begin with a
// dot follow the block's.
struct VitNames {
  const char* patch_embedding;
  const char* class_token;
  const char* position_embedding;
  const char* block;  // before its number
  const char* norm1;
  const char* attention;
  const char* attention_kind;  // of core/model/operation.h
  const char* norm2;
  const char* fc1;
  const char* fc2;
  const char* norm;
  const char* head;
};

constexpr VitNames kTimmNames = {
    "patch_embed.proj", "cls_token", "pos_embed", "blocks.",  ".norm1", ".attn",
    "attention",        ".norm2",    ".mlp.fc1",  ".mlp.fc2", "norm",   "head"};

constexpr VitNames kTorchvisionNames = {"conv_proj",
                                        "class_token",
                                        "encoder.pos_embedding",
                                        "encoder.layers.encoder_layer_",
                                        ".ln_1",
                                        ".self_attention",
                                        "multihead_attention",
                                        ".ln_2",
                                        ".mlp.0",
                                        ".mlp.3",
                                        "encoder.ln",
                                        "heads.head"};

// torchvision's own vision transformer is the one that it calls vit_b_16.
const VitNames& NamesOf(const ModelSpec& spec) {
  return spec.name == "vit_b_16" ? kTorchvisionNames : kTimmNames;
}

absl::Status CheckVitSizes(const ModelSpec& spec, const Shape& input) {
  absl::Status status = CheckBlockSizes(spec);
  status.Update(CheckModelSize(spec, "patch", spec.patch, kLargestSize));
  if (!status.ok()) return status;
  if (input.size() != 3) {
    return InvalidArgument(
        spec.name, " needs images [channels, height, width], got shape ",
        ShapeText(input));
  }
  if (input[1] % spec.patch != 0 || input[2] % spec.patch != 0) {
    return InvalidArgument(
        spec.name, ": patch must divide height and width, got patch ",
        spec.patch, " and an image of ", input[1], " x ", input[2]);
  }
  return absl::OkStatus();
}

//   width  what pruning has left of spec.width
void AddEmbedding(const ModelSpec& spec, int64_t channels, int64_t width,
                  Chain& chain) {
  const VitNames& names = NamesOf(spec);
  chain.Begin("patch_embed")
      .Add("patch_embedding", names.patch_embedding,
           {channels, width, spec.patch})
      .Add("class_token", names.class_token, {width});
  const int64_t tokens = chain.shape().front();
  chain.Add("position_embedding", names.position_embedding, {tokens, width})
      .AddDropout(spec.dropout);
}

// Two layers a block: its attention half and its MLP half.
void AddVitBlock(const ModelSpec& spec, int index, int64_t width,
                 Chain& chain) {
  const VitNames& names = NamesOf(spec);
  const std::string layer = absl::StrCat("blocks.", index);
  const std::string block = absl::StrCat(names.block, index);
  const int64_t heads = chain.Size(spec.heads);
  const int64_t hidden = chain.Size(kMlpRatio * spec.width);
  chain.Begin(layer + ".attn")
      .Add("residual_begin")
      .Add("layer_norm", block + names.norm1, {width})
      .Add(names.attention_kind, block + names.attention,
           {width, heads, spec.width / spec.heads})
      .AddDropout(spec.dropout)
      .Add("residual_end");
  chain.Begin(layer + ".mlp")
      .Add("residual_begin")
      .Add("layer_norm", block + names.norm2, {width})
      .Add("linear", block + names.fc1, {width, hidden})
      .Add("gelu")
      .AddDropout(spec.dropout)
      .Add("linear", block + names.fc2, {hidden, width})
      .AddDropout(spec.dropout)
      .Add("residual_end");
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeVit(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes) {
  PACELINE_RETURN_IF_ERROR(CheckVitSizes(spec, input));
  const VitNames& names = NamesOf(spec);
  Chain chain(spec.name, input, classes);
  chain.Adapt(spec.lora, names.head).Resize(spec.sizes);
  const int64_t width = chain.Size(spec.width);
  AddEmbedding(spec, input[0], width, chain);
  for (int i = 0; i < spec.depth; ++i) AddVitBlock(spec, i, width, chain);
  // Tokens are normalised one by one, so those that end here need it no more.
  chain.Begin("head")
      .Add("take_token", "", {0})
      .Add("layer_norm", names.norm, {width})
      .Add("linear", names.head, {width, classes});
  return std::move(chain).Build();
}

namespace {

// The differences between the two families.
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
      .Add("padding_mask", "", {family.padding})
      .Add("padded_embedding", prefix + "word_embeddings",
           {spec.vocabulary, width, family.padding});
  if (family.masked_positions) {
    chain.Add("masked_positions", prefix + "position_embeddings",
              {spec.positions, width, family.padding});
  } else {
    chain.Add("learned_positions", prefix + "position_embeddings",
              {spec.positions, width});
  }
  chain
      .Add("first_type", prefix + "token_type_embeddings",
           {family.types, width})
      .Add(family.norm, prefix + "LayerNorm", {width})
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
      .Add("masked_attention", block + ".attention.self", {width, spec.heads},
           spec.dropout)
      .Add("linear", block + ".attention.output.dense", {width, width})
      .AddDropout(spec.dropout)
      .Add("residual_end")
      .Add(family.norm, block + ".attention.output.LayerNorm", {width});
  chain.Begin(layer + ".output")
      .Add("residual_begin")
      .Add("linear", block + ".intermediate.dense", {width, kMlpRatio * width})
      .Add("gelu")
      .Add("linear", block + ".output.dense", {kMlpRatio * width, width})
      .AddDropout(spec.dropout)
      .Add("residual_end")
      .Add(family.norm, block + ".output.LayerNorm", {width});
}

// From the first token.
void AddHead(const ModelSpec& spec, int32_t classes, Chain& chain) {
  const int64_t width = spec.width;
  chain.Begin("classifier").Add("take_token", "", {0});
  if (&FamilyOf(spec) == &kRoberta) {
    chain.AddDropout(spec.dropout)
        .Add("linear", "classifier.dense", {width, width})
        .Add("tanh")
        .AddDropout(spec.dropout)
        .Add("linear", "classifier.out_proj", {width, classes});
    return;
  }
  chain.Add("linear", "bert.pooler.dense", {width, width})
      .Add("tanh")
      .AddDropout(spec.dropout)
      .Add("linear", "classifier", {width, classes});
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeBert(const ModelSpec& spec,
                                              const Shape& input,
                                              int32_t classes) {
  const Family& family = FamilyOf(spec);
  const int64_t before = family.masked_positions ? family.padding + 1 : 0;
  PACELINE_RETURN_IF_ERROR(CheckLanguageSizes(spec, input, before));
  if (spec.vocabulary <= family.padding) {
    return InvalidArgument(spec.name, ": vocabulary is ", spec.vocabulary,
                           ", need more than ", family.padding,
                           ", the number of the token that fills samples up");
  }
  Chain chain(spec.name, input, classes);
  chain.TakeTokens(spec.vocabulary).Adapt(spec.lora, "classifier");
  AddEmbedding(spec, family, chain);
  for (int i = 0; i < spec.depth; ++i) AddBlock(spec, family, i, chain);
  AddHead(spec, classes, chain);
  return std::move(chain).Build();
}

namespace {

constexpr char kEmbedding[] = "transformer.wte";

// Two layers a block: its attention half and its MLP half.
void AddBlock(const ModelSpec& spec, int index, Chain& chain) {
  const std::string layer = absl::StrCat("h.", index);
  const std::string block = absl::StrCat("transformer.h.", index);
  const int64_t width = spec.width;
  chain.Begin(layer + ".attn")
      .Add("residual_begin")
      .Add("layer_norm_e5", block + ".ln_1", {width})
      .Add("causal_attention", block + ".attn", {width, spec.heads},
           spec.dropout)
      .AddDropout(spec.dropout)
      .Add("residual_end");
  chain.Begin(layer + ".mlp")
      .Add("residual_begin")
      .Add("layer_norm_e5", block + ".ln_2", {width})
      .Add("conv1d", block + ".mlp.c_fc", {width, kMlpRatio * width})
      .Add("gelu_new")
      .Add("conv1d", block + ".mlp.c_proj", {kMlpRatio * width, width})
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
  chain.TakeTokens(spec.vocabulary, input).Adapt(spec.lora, "");
  // Files of old versions have the tied weight twice.
  chain.AddAlias("lm_head.weight", absl::StrCat(kEmbedding, ".weight"));
  chain.Begin("embed")
      .Add("token_embedding", kEmbedding, {spec.vocabulary, spec.width})
      .Add("learned_positions", "transformer.wpe", {spec.positions, spec.width})
      .AddDropout(spec.dropout);
  for (int i = 0; i < spec.depth; ++i) AddBlock(spec, i, chain);
  chain.Begin("head")
      .Add("layer_norm_e5", "transformer.ln_f", {spec.width})
      .Add("tied_linear", kEmbedding, {spec.width, spec.vocabulary});
  return std::move(chain).Build();
}

namespace {

// From this layer on each adds its input to its output.
constexpr int kFirstResidual = 2;

absl::Status CheckGnmtSizes(const ModelSpec& spec, const Shape& input,
                            int32_t tokens) {
  // The first layer of the encoder is twice as wide, and the first of the
  // decoder has no context yet: each has a second one.
  absl::Status sizes = CheckModelSize(spec, "depth", spec.depth, kMostDepth, 2);
  sizes.Update(CheckModelSize(spec, "width", spec.width, kLargestSize));
  sizes.Update(
      CheckModelSize(spec, "vocabulary", spec.vocabulary, kMostTokens));
  sizes.Update(CheckVocabulary(spec, tokens));
  if (!sizes.ok()) return sizes;
  if (input.size() != 1 || input[0] % 2 != 0) {
    return InvalidArgument(
        spec.name,
        " needs pairs of sentences [2 x block], got samples of shape ",
        ShapeText(input), ": use a data set of pairs");
  }
  return absl::OkStatus();
}

void AddEncoder(const ModelSpec& spec, Chain& chain) {
  const int64_t width = spec.width;
  chain.Begin("encoder.embed")
      .Add("split_pair", "", {kPaddingToken})
      .Add("padded_embedding", "encoder.embedder",
           {spec.vocabulary, width, kPaddingToken});
  for (int i = 0; i < spec.depth; ++i) {
    const bool residual = i >= kFirstResidual;
    chain.Begin(absl::StrCat("encoder.", i));
    if (residual) chain.Add("residual_begin");
    chain.AddDropout(spec.dropout)
        .Add(i == 0 ? "bidirectional_lstm" : "lstm",
             absl::StrCat("encoder.rnn_layers.", i),
             {i == 1 ? 2 * width : width, width});
    if (residual) chain.Add("residual_end");
  }
}

void AddDecoder(const ModelSpec& spec, Chain& chain) {
  const int64_t width = spec.width;
  chain.Begin("decoder.embed")
      .Add("take_target", "", {width})
      .Add("padded_embedding", "decoder.embedder",
           {spec.vocabulary, width, kPaddingToken});
  chain.Begin("decoder.0")
      .AddDropout(spec.dropout)
      .Add("lstm", "decoder.att_rnn.rnn", {width, width});
  chain.Begin("decoder.attention")
      .Add("additive_attention", "decoder.att_rnn.attn", {width});
  for (int i = 1; i < spec.depth; ++i) {
    const bool residual = i >= kFirstResidual;
    const bool last = i + 1 == spec.depth;
    chain.Begin(absl::StrCat("decoder.", i));
    if (residual) chain.Add("residual_begin");
    chain.Add(last ? "join_last_context" : "join_context", "", {width})
        .AddDropout(spec.dropout)
        .Add("lstm", absl::StrCat("decoder.rnn_layers.", i - 1),
             {2 * width, width});
    if (residual) chain.Add("residual_end");
  }
  chain.Begin("classifier")
      .Add("score_tokens", "decoder.classifier.classifier",
           {width, spec.vocabulary});
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeGnmt(const ModelSpec& given,
                                              const Shape& input,
                                              int32_t classes) {
  const ModelSpec spec = WithSizesOfData(given, input, classes);
  PACELINE_RETURN_IF_ERROR(CheckGnmtSizes(spec, input, classes));
  Chain chain(spec.name, input, spec.vocabulary);
  // Every token of the target, the second half of a sample, has a label.
  chain.TakeTokens(spec.vocabulary, {input[0] / 2});
  AddEncoder(spec, chain);
  AddDecoder(spec, chain);
  return std::move(chain).Build();
}

}  // namespace paceline
