#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/chain.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr int64_t kSmallestEdge = 4;  // two pools halve it twice

absl::Status CheckImage(const Shape& input) {
  if (input.size() == 3 && input[1] >= kSmallestEdge &&
      input[2] >= kSmallestEdge) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("lenet needs images [channels, height, width] of at least ",
                   kSmallestEdge, " x ", kSmallestEdge, " pixels, got shape [",
                   absl::StrJoin(input, ", "), "]"));
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeLenet(const ModelSpec& spec,
                                               const Shape& input,
                                               int32_t classes) {
  const absl::Status image = CheckImage(input);
  if (!image.ok()) return image;
  Chain chain("lenet", input, classes);
  chain.Begin("features.0")
      .Add({"conv2d", "features.0", {input[0], 16, 3, 1, 1}})
      .Add("relu");
  chain.Begin("features.2").Add({"max_pool2d", "", {2, 2, 0}});
  chain.Begin("features.3")
      .Add({"conv2d", "features.3", {16, 32, 3, 1, 1}})
      .Add("relu");
  chain.Begin("features.5").Add({"max_pool2d", "", {2, 2, 0}});
  chain.Begin("features.6")
      .Add({"conv2d", "features.6", {32, 32, 3, 1, 1}})
      .Add("relu");
  chain.Begin("classifier.1").Add("flatten").AddDropout(spec.dropout);
  chain.Add({"linear", "classifier.1", {chain.shape().back(), 128}})
      .Add("relu");
  chain.Begin("classifier.4")
      .AddDropout(spec.dropout)
      .Add({"linear", "classifier.4", {128, 64}})
      .Add("relu");
  chain.Begin("classifier.6").Add({"linear", "classifier.6", {64, classes}});
  return std::move(chain).Build();
}

}  // namespace paceline
