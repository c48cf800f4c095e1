#include "core/model/description.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/catalog.h"

namespace paceline {
namespace {

constexpr int64_t kMostInputValues = 1 << 24;

absl::Status CheckRequest(const ModelSpec& spec, const Shape& input,
                          int32_t classes) {
  const bool positive = std::all_of(input.begin(), input.end(),
                                    [](int64_t size) { return size > 0; });
  const int64_t values = NumElements(input);
  if (input.empty() || !positive || values < 1 || values > kMostInputValues) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples of shape [", absl::StrJoin(input, ", "),
                     "] cannot be learned from; need sizes of at least 1 and "
                     "at most ",
                     kMostInputValues, " values"));
  }
  if (classes < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes is ", classes, ", need at least 2"));
  }
  if (!(spec.dropout >= 0 && spec.dropout < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dropout must be in [0, 1), got ", spec.dropout));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeModel(const ModelSpec& spec,
                                               const Shape& input,
                                               int32_t classes) {
  const CatalogEntry* const model = FindModel(spec.name);
  if (model == nullptr) {
    const std::string meant = DidYouMean(spec.name, ModelNames());
    return absl::InvalidArgumentError(
        absl::StrCat("unknown model '", spec.name, "'",
                     meant.empty() ? "" : "; did you mean '", meant,
                     meant.empty() ? "" : "'?",
                     "; known are: ", absl::StrJoin(ModelNames(), ", ")));
  }
  const absl::Status request = CheckRequest(spec, input, classes);
  if (!request.ok()) return request;
  return model->describe(spec, input, classes);
}

bool NeedsWorker(const ModelSpec& spec) {
  return spec.name == kScriptModel && spec.script.layers.empty();
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : ModelCatalog()) {
    names.push_back(entry.model.name);
  }
  return names;
}

}  // namespace paceline
