#include "core/job/spec/checkpointing.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace paceline {

std::optional<Checkpointing> FindCheckpointing(absl::string_view name) {
  if (name == "none") return Checkpointing{};
  if (name == "stage") return Checkpointing{true, kWholeStage};
  int every = 0;
  // Only digits: SimpleAtoi would take a sign and blanks.
  if (!absl::ConsumePrefix(&name, "every-") || name.empty() ||
      name.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(name, &every) || every < 1 ||
      every > kMostLayersASegment) {
    return std::nullopt;
  }
  return Checkpointing{true, every};
}

std::vector<std::pair<int, int>> SegmentsOf(const Checkpointing& checkpointing,
                                            int layers) {
  const bool whole =
      !checkpointing.recomputes || checkpointing.every == kWholeStage;
  const int step = whole ? layers : std::min(checkpointing.every, layers);
  std::vector<std::pair<int, int>> segments;
  for (int first = 0; first < layers; first += step) {
    segments.emplace_back(first, std::min(first + step, layers));
  }
  return segments;
}

}  // namespace paceline
