#include "worker/pipeline/link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace paceline {

FrameKey KeyOf(const FrameHeader& header) {
  return {header.kind, header.boundary, header.batch.ordinal,
          header.micro_batch};
}

std::string ToText(const FrameKey& key) {
  return absl::StrCat(FrameKindName(key.kind), " of batch ", key.batch,
                      ", micro-batch ", key.micro_batch, " at boundary ",
                      key.boundary);
}

std::optional<FrameEnds> EndsOf(FrameKind kind, int32_t boundary, int stages,
                                const std::vector<Tie>& ties) {
  const int cuts = stages - 1;
  const int count = static_cast<int>(ties.size());
  if (boundary < 0 || boundary >= cuts + count) return std::nullopt;
  const bool is_cut = boundary < cuts;
  switch (kind) {
    case FrameKind::kActivation:
      if (is_cut) return FrameEnds{boundary, boundary + 1};
      return std::nullopt;
    case FrameKind::kGradient:
      if (is_cut) return FrameEnds{boundary + 1, boundary};
      return std::nullopt;
    case FrameKind::kTiedGradient:
    case FrameKind::kTiedValue:
      break;
    case FrameKind::kHello:
      return std::nullopt;
  }
  if (is_cut) return std::nullopt;
  const Tie& tie = ties[boundary - cuts];
  return kind == FrameKind::kTiedGradient
             ? FrameEnds{tie.user_stage, tie.owner_stage}
             : FrameEnds{tie.owner_stage, tie.user_stage};
}

std::vector<std::pair<FrameKind, int32_t>> Crossings(
    int stages, const std::vector<Tie>& ties) {
  const int32_t cuts = stages - 1;
  const auto end = static_cast<int32_t>(cuts + ties.size());
  std::vector<std::pair<FrameKind, int32_t>> crossings;
  for (int32_t boundary = 0; boundary < end; ++boundary) {
    const bool is_cut = boundary < cuts;
    crossings.emplace_back(
        is_cut ? FrameKind::kActivation : FrameKind::kTiedGradient, boundary);
    crossings.emplace_back(
        is_cut ? FrameKind::kGradient : FrameKind::kTiedValue, boundary);
  }
  return crossings;
}

int BoundOf(const ScheduleBounds& bounds, FrameKind kind, int32_t boundary) {
  if (kind == FrameKind::kTiedGradient || kind == FrameKind::kTiedValue) {
    return 1;
  }
  const std::vector<int>& frames = kind == FrameKind::kActivation
                                       ? bounds.activation_frames
                                       : bounds.gradient_frames;
  return std::max(1, frames[boundary]);
}

int SendLimit(int bound) { return 4 * bound + 64; }

absl::Status CheckBounds(const ScheduleBounds& bounds, size_t stages) {
  if (stages == 0) return absl::InvalidArgumentError("a run without stages");
  if (bounds.activation_frames.size() == stages - 1 &&
      bounds.gradient_frames.size() == stages - 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "bounds for ", bounds.activation_frames.size(), " and ",
      bounds.gradient_frames.size(), " boundaries, need ", stages - 1));
}

int StageWiring::IndexOf(WorkerId worker) const {
  const auto found = std::find_if(
      replicas.begin(), replicas.end(),
      [worker](const WorkerAddress& each) { return each.worker == worker; });
  return found == replicas.end() ? -1
                                 : static_cast<int>(found - replicas.begin());
}

}  // namespace paceline
