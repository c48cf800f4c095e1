#include "core/job/spec/recompute.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace paceline {

std::optional<Recompute> FindRecompute(absl::string_view name) {
  if (name == "none") return Recompute{};
  if (name == "stage") return Recompute{true, kWholeStage};
  int every = 0;
  // Only digits: SimpleAtoi would take a sign and blanks.
  if (!absl::ConsumePrefix(&name, "every-") || name.empty() ||
      name.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(name, &every) || every < 1 ||
      every > kMostLayersASegment) {
    return std::nullopt;
  }
  return Recompute{true, every};
}

std::vector<std::pair<int, int>> SegmentsOf(const Recompute& recompute,
                                            int layers) {
  const bool whole = !recompute.recomputes || recompute.every == kWholeStage;
  const int step = whole ? layers : std::min(recompute.every, layers);
  std::vector<std::pair<int, int>> segments;
  for (int first = 0; first < layers; first += step) {
    segments.emplace_back(first, std::min(first + step, layers));
  }
  return segments;
}

}  // namespace paceline
