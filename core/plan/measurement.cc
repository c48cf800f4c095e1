#include "core/plan/measurement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/catalog.h"

namespace paceline {

double FrameSecondsPerByte(const DeviceProfile& profile,
                           const std::vector<LinkMeasurement>& links) {
  double sum = 0;
  int count = 0;
  for (const LinkMeasurement& link : links) {
    double seconds = 0;
    if (link.from == profile.key.device) {
      seconds = link.send_cpu_seconds_per_byte;
    } else if (link.to == profile.key.device) {
      seconds = link.receive_cpu_seconds_per_byte;
    }
    if (seconds <= 0) continue;
    sum += seconds;
    ++count;
  }
  return std::max(profile.frame_seconds_per_byte, count > 0 ? sum / count : 0);
}

std::string ModelKey(const ModelSpec& model, const Shape& input,
                     int32_t classes) {
  return absl::StrCat(model.name, "(", SizesText(model), ") ",
                      absl::StrJoin(input, "x"), " -> ", classes);
}

}  // namespace paceline
