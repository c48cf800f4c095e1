#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/model/chain.h"

namespace paceline {

namespace {

constexpr size_t kMostHidden = 256;

absl::Status CheckHidden(const std::vector<int32_t>& hidden) {
  if (hidden.size() > kMostHidden) {
    return InvalidArgument("mlp: ", hidden.size(), " hidden layers; at most ",
                           kMostHidden, " are allowed");
  }
  for (const int32_t width : hidden) {
    if (width < 1 || width > kLargestSize) {
      return InvalidArgument("mlp: a hidden layer must have from 1 to ",
                             kLargestSize, " units, got ", width);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeMlp(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes) {
  PACELINE_RETURN_IF_ERROR(CheckHidden(spec.hidden));
  Chain chain("mlp", input, classes);
  const size_t layers = spec.hidden.size() + 1;
  for (size_t i = 0; i < layers; ++i) {
    const bool last = i + 1 == layers;
    const std::string name = absl::StrCat("layers.", i);
    chain.Begin(name);
    if (i == 0) chain.Add("flatten");
    const int64_t out = last ? classes : spec.hidden[i];
    const int64_t in = chain.shape().back();
    chain.Add("linear", name, {in, out});
    if (!last) chain.Add("relu").AddDropout(spec.dropout);
  }
  return std::move(chain).Build();
}

constexpr int64_t kSmallestLenetEdge = 4;  // two pools halve it twice

absl::StatusOr<ModelDescription> DescribeLenet(const ModelSpec& spec,
                                               const Shape& input,
                                               int32_t classes) {
  PACELINE_RETURN_IF_ERROR(CheckImages(spec, input, kSmallestLenetEdge));
  Chain chain("lenet", input, classes);
  chain.Begin("features.0")
      .Add("conv2d", "features.0", {input[0], 16, 3, 1, 1})
      .Add("relu");
  chain.Begin("features.2").Add("max_pool2d", "", {2, 2, 0});
  chain.Begin("features.3")
      .Add("conv2d", "features.3", {16, 32, 3, 1, 1})
      .Add("relu");
  chain.Begin("features.5").Add("max_pool2d", "", {2, 2, 0});
  chain.Begin("features.6")
      .Add("conv2d", "features.6", {32, 32, 3, 1, 1})
      .Add("relu");
  chain.Begin("classifier.1").Add("flatten").AddDropout(spec.dropout);
  chain.Add("linear", "classifier.1", {chain.shape().back(), 128}).Add("relu");
  chain.Begin("classifier.4")
      .AddDropout(spec.dropout)
      .Add("linear", "classifier.4", {128, 64})
      .Add("relu");
  chain.Begin("classifier.6").Add("linear", "classifier.6", {64, classes});
  return std::move(chain).Build();
}

namespace {

constexpr int64_t kSmallestResnetEdge = 2;

// How many blocks each of the four groups has, and of which kind (He et al.
// 2016, table 1).
struct ResnetSizes {
  int64_t blocks[4];
  bool bottleneck;
};

constexpr ResnetSizes kResnet18 = {{2, 2, 2, 2}, false};
constexpr ResnetSizes kResnet50 = {{3, 4, 6, 3}, true};
constexpr int64_t kExpansion = 4;  // of a bottleneck

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
      .Add("conv2d_no_bias", c.convolution,
           {in, c.out, c.kernel, c.stride, c.kernel / 2})
      .Add("batch_norm2d", c.norm, {c.out});
}

struct Block {
  bool bottleneck;
  bool projects;  // its input, to the shape of what is added to that
  int64_t width;  // of the convolutions inside, before they are pruned
  int64_t out;    // channels of the result
  int64_t stride;
};

// The stride is in the 3x3 convolution of a bottleneck, as torchvision has it
// ("ResNet v1.5").
void AddBlock(const std::string& name, const Block& block, Chain& chain) {
  const auto& [bottleneck, projects, width, out, stride] = block;
  const int64_t in = chain.shape().front();
  chain.Begin(name);
  if (projects) {
    chain.Add("residual_project", name + ".downsample", {in, out, stride});
  } else {
    chain.Add("residual_begin");
  }
  const auto add = [&](int index, int64_t channels, int64_t kernel,
                       int64_t step) {
    AddConvolution({absl::StrCat(name, ".conv", index),
                    absl::StrCat(name, ".bn", index), channels, kernel, step},
                   chain);
  };
  if (bottleneck) {
    add(1, chain.Size(width), 1, 1);
    chain.Add("relu");
    add(2, chain.Size(width), 3, stride);
    chain.Add("relu");
    add(3, out, 1, 1);
  } else {
    add(1, chain.Size(width), 3, stride);
    chain.Add("relu");
    add(2, out, 3, 1);
  }
  chain.Add("residual_end").Add("relu");
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeResnet(const ModelSpec& spec,
                                                const Shape& input,
                                                int32_t classes) {
  PACELINE_RETURN_IF_ERROR(
      CheckModelSize(spec, "width", spec.width, kLargestSize / 32));
  PACELINE_RETURN_IF_ERROR(CheckImages(spec, input, kSmallestResnetEdge));
  const ResnetSizes& sizes = spec.name == "resnet50" ? kResnet50 : kResnet18;
  Chain chain(spec.name, input, classes);
  chain.Resize(spec.sizes).Begin("stem");
  int64_t out = chain.Size(spec.width);
  AddConvolution({"conv1", "bn1", out, 7, 2}, chain);
  chain.Add("relu").Add("max_pool2d", "", {3, 2, 1});
  for (int group = 0; group < 4; ++group) {
    const int64_t width = int64_t{spec.width} << group;
    // Where nothing is projected the stem's channels are the first group's.
    const bool changes = group > 0 || sizes.bottleneck;
    if (changes) {
      out = chain.Size(sizes.bottleneck ? kExpansion * width : width);
    }
    for (int64_t block = 0; block < sizes.blocks[group]; ++block) {
      const bool first = block == 0;
      AddBlock(absl::StrCat("layer", group + 1, ".", block),
               {sizes.bottleneck, first && changes, width, out,
                first && group > 0 ? 2 : 1},
               chain);
    }
  }
  chain.Begin("head").Add("adaptive_avg_pool2d", "", {1}).Add("flatten");
  const int64_t features = chain.shape().front();
  chain.Add("linear", "fc", {features, classes});
  return std::move(chain).Build();
}

namespace {

constexpr int64_t kSmallestVggEdge = 32;  // five pools halve it

// Convolutions before each pool (Simonyan and Zisserman 2015, table 1,
// configurations A and D), and their channels in units of the width.
constexpr int64_t kVgg11[5] = {1, 1, 2, 2, 2};
constexpr int64_t kVgg16[5] = {2, 2, 3, 3, 3};
constexpr int64_t kWidthFactors[5] = {1, 2, 4, 8, 8};

// The classifier sees a grid with this edge, and has so many hidden units, in
// units of the width.
constexpr int64_t kGrid = 7;
constexpr int64_t kHidden = 64;

// A pool belongs to the convolution before it: between the two there are four
// times as many values to send.  Numbers count torchvision's modules.
void AddFeatures(const ModelSpec& spec, Chain& chain) {
  const int64_t(&convolutions)[5] = spec.name == "vgg16" ? kVgg16 : kVgg11;
  int module = 0;
  for (int group = 0; group < 5; ++group) {
    for (int64_t i = 0; i < convolutions[group]; ++i) {
      const std::string name = absl::StrCat("features.", module);
      const int64_t in = chain.shape().front();
      const int64_t out = chain.Size(spec.width * kWidthFactors[group]);
      chain.Begin(name).Add("conv2d", name, {in, out, 3, 1, 1}).Add("relu");
      module += 2;
    }
    chain.Add("max_pool2d", "", {2, 2, 0});
    module += 1;
  }
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeVgg(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes) {
  PACELINE_RETURN_IF_ERROR(
      CheckModelSize(spec, "width", spec.width, kLargestSize / kHidden));
  PACELINE_RETURN_IF_ERROR(CheckImages(spec, input, kSmallestVggEdge));
  Chain chain(spec.name, input, classes);
  chain.Resize(spec.sizes);
  AddFeatures(spec, chain);
  const int64_t hidden = chain.Size(spec.width * kHidden);
  const int64_t second = chain.Size(spec.width * kHidden);
  chain.Begin("classifier.0")
      .Add("adaptive_avg_pool2d", "", {kGrid})
      .Add("flatten");
  const int64_t features = chain.shape().front();
  chain.Add("linear", "classifier.0", {features, hidden})
      .Add("relu")
      .AddDropout(spec.dropout);
  chain.Begin("classifier.3")
      .Add("linear", "classifier.3", {hidden, second})
      .Add("relu")
      .AddDropout(spec.dropout);
  chain.Begin("classifier.6").Add("linear", "classifier.6", {second, classes});
  return std::move(chain).Build();
}

}  // namespace paceline
