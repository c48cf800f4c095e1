#include "core/transfer/fence.h"

#include "absl/strings/str_cat.h"

namespace paceline {

FenceVerdict DecideFence(const FenceState& mine, const Fence& theirs) {
  if (mine.closed && theirs <= *mine.closed) return FenceVerdict::kDropOlder;
  if (!mine.open || theirs > *mine.open) return FenceVerdict::kHoldNewer;
  return theirs == *mine.open ? FenceVerdict::kAccept
                              : FenceVerdict::kDropOlder;
}

std::string ToText(const Fence& fence) {
  return absl::StrCat("job=", fence.job.value, " attempt=", fence.attempt,
                      " plan=", fence.plan_version);
}

}  // namespace paceline
