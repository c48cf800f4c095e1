#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/chain.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr int64_t kSmallestEdge = 2;

// How many blocks each of the four groups has, and of which kind (He et al.
// 2016, table 1).
struct ResnetSizes {
  int64_t blocks[4];
  bool bottleneck;
};

constexpr ResnetSizes kResnet18 = {{2, 2, 2, 2}, false};
constexpr ResnetSizes kResnet50 = {{3, 4, 6, 3}, true};
constexpr int64_t kExpansion = 4;  // of a bottleneck

absl::Status CheckRequest(const ModelSpec& spec, const Shape& input) {
  if (spec.width < 1 || spec.width > kLargestSize / 32) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.name, ": width must be from 1 to ", kLargestSize / 32,
                     ", got ", spec.width));
  }
  if (input.size() != 3 || std::min(input[1], input[2]) < kSmallestEdge) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.name, " needs images [channels, height, width] of at least ",
        kSmallestEdge, " x ", kSmallestEdge, " pixels, got shape [",
        absl::StrJoin(input, ", "), "]"));
  }
  return absl::OkStatus();
}

// A convolution without bias, and the normalisation that would take it away.
struct Convolution {
  std::string convolution;  // names of parameters
  std::string norm;
  int64_t out;
  int64_t kernel;
  int64_t stride;
};

void AddConvolution(const Convolution& c, Chain& chain) {
  const int64_t in = chain.shape().front();
  chain
      .Add({"conv2d_no_bias",
            c.convolution,
            {in, c.out, c.kernel, c.stride, c.kernel / 2}})
      .Add({"batch_norm2d", c.norm, {c.out}});
}

// The stride is in the 3x3 convolution of a bottleneck, as torchvision has it
// ("ResNet v1.5").
void AddBlock(const std::string& name, bool bottleneck, int64_t width,
              int64_t stride, Chain& chain) {
  const int64_t in = chain.shape().front();
  const int64_t out = bottleneck ? kExpansion * width : width;
  chain.Begin(name);
  if (stride == 1 && in == out) {
    chain.Add("residual_begin");
  } else {
    chain.Add({"residual_project", name + ".downsample", {in, out, stride}});
  }
  const auto add = [&](int index, int64_t channels, int64_t kernel,
                       int64_t step) {
    AddConvolution({absl::StrCat(name, ".conv", index),
                    absl::StrCat(name, ".bn", index), channels, kernel, step},
                   chain);
  };
  if (bottleneck) {
    add(1, width, 1, 1);
    chain.Add("relu");
    add(2, width, 3, stride);
    chain.Add("relu");
    add(3, out, 1, 1);
  } else {
    add(1, width, 3, stride);
    chain.Add("relu");
    add(2, width, 3, 1);
  }
  chain.Add("residual_end").Add("relu");
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeResnet(const ModelSpec& spec,
                                                const Shape& input,
                                                int32_t classes) {
  const absl::Status request = CheckRequest(spec, input);
  if (!request.ok()) return request;
  const ResnetSizes& sizes = spec.name == "resnet50" ? kResnet50 : kResnet18;
  Chain chain(spec.name, input, classes);
  chain.Begin("stem");
  AddConvolution({"conv1", "bn1", spec.width, 7, 2}, chain);
  chain.Add("relu").Add({"max_pool2d", "", {3, 2, 1}});
  for (int group = 0; group < 4; ++group) {
    for (int64_t block = 0; block < sizes.blocks[group]; ++block) {
      AddBlock(absl::StrCat("layer", group + 1, ".", block), sizes.bottleneck,
               int64_t{spec.width} << group, group > 0 && block == 0 ? 2 : 1,
               chain);
    }
  }
  chain.Begin("head").Add({"adaptive_avg_pool2d", "", {1}}).Add("flatten");
  const int64_t features = chain.shape().front();
  chain.Add({"linear", "fc", {features, classes}});
  return std::move(chain).Build();
}

}  // namespace paceline
