#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/chain.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr int32_t kMostDepth = 512;
constexpr int64_t kMlpRatio = 4;

// What a library calls the parameters of this model.  Names that begin with a
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

absl::Status CheckRange(const ModelSpec& spec, const char* what, int64_t value,
                        int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      spec.name, ": ", what, " must be from 1 to ", most, ", got ", value));
}

absl::Status CheckSizes(const ModelSpec& spec, const Shape& input) {
  absl::Status status = CheckRange(spec, "depth", spec.depth, kMostDepth);
  status.Update(CheckRange(spec, "width", spec.width, kLargestSize));
  status.Update(CheckRange(spec, "heads", spec.heads, kLargestSize));
  status.Update(CheckRange(spec, "patch", spec.patch, kLargestSize));
  if (!status.ok()) return status;
  if (spec.width % spec.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.name, ": heads must divide width, got heads ",
                     spec.heads, " and width ", spec.width));
  }
  if (input.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.name, " needs images [channels, height, width], got shape [",
        absl::StrJoin(input, ", "), "]"));
  }
  if (input[1] % spec.patch != 0 || input[2] % spec.patch != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.name, ": patch must divide height and width, got patch ",
        spec.patch, " and an image of ", input[1], " x ", input[2]));
  }
  return absl::OkStatus();
}

void AddEmbedding(const ModelSpec& spec, int64_t channels, Chain& chain) {
  const VitNames& names = NamesOf(spec);
  chain.Begin("patch_embed")
      .Add({"patch_embedding",
            names.patch_embedding,
            {channels, spec.width, spec.patch}})
      .Add({"class_token", names.class_token, {spec.width}});
  const int64_t tokens = chain.shape().front();
  chain
      .Add({"position_embedding",
            names.position_embedding,
            {tokens, spec.width}})
      .AddDropout(spec.dropout);
}

// Two layers a block: its attention half and its MLP half.
void AddBlock(const ModelSpec& spec, int index, Chain& chain) {
  const VitNames& names = NamesOf(spec);
  const std::string layer = absl::StrCat("blocks.", index);
  const std::string block = absl::StrCat(names.block, index);
  const int64_t width = spec.width;
  chain.Begin(layer + ".attn")
      .Add("residual_begin")
      .Add({"layer_norm", block + names.norm1, {width}})
      .Add({names.attention_kind, block + names.attention, {width, spec.heads}})
      .AddDropout(spec.dropout)
      .Add("residual_end");
  chain.Begin(layer + ".mlp")
      .Add("residual_begin")
      .Add({"layer_norm", block + names.norm2, {width}})
      .Add({"linear", block + names.fc1, {width, kMlpRatio * width}})
      .Add("gelu")
      .AddDropout(spec.dropout)
      .Add({"linear", block + names.fc2, {kMlpRatio * width, width}})
      .AddDropout(spec.dropout)
      .Add("residual_end");
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeVit(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes) {
  const absl::Status sizes = CheckSizes(spec, input);
  if (!sizes.ok()) return sizes;
  const VitNames& names = NamesOf(spec);
  Chain chain(spec.name, input, classes);
  AddEmbedding(spec, input[0], chain);
  for (int i = 0; i < spec.depth; ++i) AddBlock(spec, i, chain);
  // Tokens are normalised one by one, so those that end here need it no more.
  chain.Begin("head")
      .Add({"take_token", "", {0}})
      .Add({"layer_norm", names.norm, {spec.width}})
      .Add({"linear", names.head, {spec.width, classes}});
  return std::move(chain).Build();
}

}  // namespace paceline
