#include "worker/link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/transfer/frame_check.h"

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

int SendingStage(FrameKind kind, int32_t boundary) {
  return kind == FrameKind::kActivation ? boundary : boundary + 1;
}

int ReceivingStage(FrameKind kind, int32_t boundary) {
  return kind == FrameKind::kActivation ? boundary + 1 : boundary;
}

int BoundOf(const ScheduleBounds& bounds, FrameKind kind, int32_t boundary) {
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

}  // namespace paceline
