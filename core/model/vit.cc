#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/chain.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr int32_t kMostDepth = 512;
constexpr int64_t kMlpRatio = 4;

absl::Status CheckRange(const char* what, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "vit: ", what, " must be from 1 to ", most, ", got ", value));
}

absl::Status CheckSizes(const ModelSpec& spec, const Shape& input) {
  absl::Status status = CheckRange("depth", spec.depth, kMostDepth);
  status.Update(CheckRange("width", spec.width, kLargestSize));
  status.Update(CheckRange("heads", spec.heads, kLargestSize));
  status.Update(CheckRange("patch", spec.patch, kLargestSize));
  if (!status.ok()) return status;
  if (spec.width % spec.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("vit: heads must divide width, got heads ", spec.heads,
                     " and width ", spec.width));
  }
  if (input.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("vit needs images [channels, height, width], got shape [",
                     absl::StrJoin(input, ", "), "]"));
  }
  if (input[1] % spec.patch != 0 || input[2] % spec.patch != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "vit: patch must divide height and width, got patch ", spec.patch,
        " and an image of ", input[1], " x ", input[2]));
  }
  return absl::OkStatus();
}

void AddEmbedding(const ModelSpec& spec, int64_t channels, Chain& chain) {
  chain.Begin("patch_embed")
      .Add({"patch_embedding",
            "patch_embed.proj",
            {channels, spec.width, spec.patch}})
      .Add({"class_token", "cls_token", {spec.width}});
  const int64_t tokens = chain.shape().front();
  chain.Add({"position_embedding", "pos_embed", {tokens, spec.width}})
      .AddDropout(spec.dropout);
}

// Two layers a block: its attention half and its MLP half.
void AddBlock(const ModelSpec& spec, int index, Chain& chain) {
  const std::string block = absl::StrCat("blocks.", index);
  const int64_t width = spec.width;
  chain.Begin(block + ".attn")
      .Add("residual_begin")
      .Add({"layer_norm", block + ".norm1", {width}})
      .Add({"attention", block + ".attn", {width, spec.heads}})
      .AddDropout(spec.dropout)
      .Add("residual_end");
  chain.Begin(block + ".mlp")
      .Add("residual_begin")
      .Add({"layer_norm", block + ".norm2", {width}})
      .Add({"linear", block + ".mlp.fc1", {width, kMlpRatio * width}})
      .Add("gelu")
      .AddDropout(spec.dropout)
      .Add({"linear", block + ".mlp.fc2", {kMlpRatio * width, width}})
      .AddDropout(spec.dropout)
      .Add("residual_end");
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeVit(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes) {
  const absl::Status sizes = CheckSizes(spec, input);
  if (!sizes.ok()) return sizes;
  Chain chain("vit", input, classes);
  AddEmbedding(spec, input[0], chain);
  for (int i = 0; i < spec.depth; ++i) AddBlock(spec, i, chain);
  chain.Begin("head")
      .Add({"layer_norm", "norm", {spec.width}})
      .Add({"take_token", "", {0}})
      .Add({"linear", "head", {spec.width, classes}});
  return std::move(chain).Build();
}

}  // namespace paceline
