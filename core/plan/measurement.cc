#include "core/plan/measurement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/catalog.h"

namespace paceline {

std::string ModelKey(const ModelSpec& model, const Shape& input,
                     int32_t classes) {
  return absl::StrCat(model.name, "(", SizesText(model), ") ",
                      absl::StrJoin(input, "x"), " -> ", classes);
}

}  // namespace paceline
