#include "core/plan/measurement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {

std::string ModelKey(const ModelSpec& model, const Shape& input,
                     int32_t classes) {
  std::string sizes;
  if (model.name == "mlp") {
    sizes = absl::StrCat("hidden=", absl::StrJoin(model.hidden, "-"), ",");
  } else if (model.name == "vit") {
    sizes = absl::StrCat("depth=", model.depth, ",width=", model.width,
                         ",heads=", model.heads, ",patch=", model.patch, ",");
  }
  return absl::StrCat(model.name, "(", sizes, "dropout=", model.dropout, ") ",
                      absl::StrJoin(input, "x"), " -> ", classes);
}

}  // namespace paceline
