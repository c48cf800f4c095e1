#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/model/chain.h"
#include "core/model/models.h"

namespace paceline {
namespace {

constexpr size_t kMostHidden = 256;

absl::Status CheckHidden(const std::vector<int32_t>& hidden) {
  if (hidden.size() > kMostHidden) {
    return absl::InvalidArgumentError(
        absl::StrCat("mlp: ", hidden.size(), " hidden layers; at most ",
                     kMostHidden, " are allowed"));
  }
  for (const int32_t width : hidden) {
    if (width < 1 || width > kLargestSize) {
      return absl::InvalidArgumentError(
          absl::StrCat("mlp: a hidden layer must have from 1 to ", kLargestSize,
                       " units, got ", width));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeMlp(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes) {
  const absl::Status hidden = CheckHidden(spec.hidden);
  if (!hidden.ok()) return hidden;
  Chain chain("mlp", input, classes);
  const size_t layers = spec.hidden.size() + 1;
  for (size_t i = 0; i < layers; ++i) {
    const bool last = i + 1 == layers;
    const std::string name = absl::StrCat("layers.", i);
    chain.Begin(name);
    if (i == 0) chain.Add("flatten");
    const int64_t out = last ? classes : spec.hidden[i];
    const int64_t in = chain.shape().back();
    chain.Add({"linear", name, {in, out}});
    if (!last) chain.Add("relu").AddDropout(spec.dropout);
  }
  return std::move(chain).Build();
}

}  // namespace paceline
