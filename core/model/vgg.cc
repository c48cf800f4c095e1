#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/chain.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr int64_t kSmallestEdge = 32;  // five pools halve it

// Convolutions before each pool (Simonyan and Zisserman 2015, table 1,
// configurations A and D), and their channels in units of the width.
constexpr int64_t kVgg11[5] = {1, 1, 2, 2, 2};
constexpr int64_t kVgg16[5] = {2, 2, 3, 3, 3};
constexpr int64_t kChannels[5] = {1, 2, 4, 8, 8};

// Of the grid that the classifier sees, and its hidden units in units of the
// width.
constexpr int64_t kGrid = 7;
constexpr int64_t kHidden = 64;

absl::Status CheckRequest(const ModelSpec& spec, const Shape& input) {
  if (spec.width < 1 || spec.width > kLargestSize / kHidden) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.name, ": width must be from 1 to ",
                     kLargestSize / kHidden, ", got ", spec.width));
  }
  if (input.size() != 3 || std::min(input[1], input[2]) < kSmallestEdge) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.name, " needs images [channels, height, width] of at least ",
        kSmallestEdge, " x ", kSmallestEdge, " pixels, got shape [",
        absl::StrJoin(input, ", "), "]"));
  }
  return absl::OkStatus();
}

// A pool belongs to the convolution before it: between the two there are four
// times as many values to send.  Numbers count torchvision's modules.
void AddFeatures(const ModelSpec& spec, Chain& chain) {
  const int64_t(&convolutions)[5] = spec.name == "vgg16" ? kVgg16 : kVgg11;
  int module = 0;
  for (int group = 0; group < 5; ++group) {
    for (int64_t i = 0; i < convolutions[group]; ++i) {
      const std::string name = absl::StrCat("features.", module);
      const int64_t in = chain.shape().front();
      const int64_t out = spec.width * kChannels[group];
      chain.Begin(name).Add({"conv2d", name, {in, out, 3, 1, 1}}).Add("relu");
      module += 2;
    }
    chain.Add({"max_pool2d", "", {2, 2, 0}});
    module += 1;
  }
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeVgg(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes) {
  const absl::Status request = CheckRequest(spec, input);
  if (!request.ok()) return request;
  Chain chain(spec.name, input, classes);
  AddFeatures(spec, chain);
  const int64_t hidden = spec.width * kHidden;
  chain.Begin("classifier.0")
      .Add({"adaptive_avg_pool2d", "", {kGrid}})
      .Add("flatten");
  const int64_t features = chain.shape().front();
  chain.Add({"linear", "classifier.0", {features, hidden}})
      .Add("relu")
      .AddDropout(spec.dropout);
  chain.Begin("classifier.3")
      .Add({"linear", "classifier.3", {hidden, hidden}})
      .Add("relu")
      .AddDropout(spec.dropout);
  chain.Begin("classifier.6")
      .Add({"linear", "classifier.6", {hidden, classes}});
  return std::move(chain).Build();
}

}  // namespace paceline
