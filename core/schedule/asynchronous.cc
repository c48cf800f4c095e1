#include "core/schedule/asynchronous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {

bool IsAsynchronous(absl::string_view schedule) {
  return schedule == "pipedream";
}

AsynchronousOrder::AsynchronousOrder(int stage, int stages)
    : warm_up_(WarmUp(stage, stages)), first_warm_up_(WarmUp(0, stages)) {
  PACELINE_CHECK(stage >= 0 && stage < stages,
                 absl::StrCat("stage=", stage, " stages=", stages));
}

AsynchronousOrder::Next AsynchronousOrder::Decide(bool more) const {
  if (WantsForward() && more) return Next::kForward;
  return in_flight() > 0 ? Next::kBackward : Next::kNothing;
}

int64_t AsynchronousOrder::VersionOfNext(bool vertical_sync) const {
  if (!vertical_sync) return backwards_;
  // Micro-batch g enters the first stage after the updates of all up to
  // g - 1 - warm_up; so the version need not travel with it.
  return std::max<int64_t>(0, forwards_ - first_warm_up_);
}

}  // namespace paceline
