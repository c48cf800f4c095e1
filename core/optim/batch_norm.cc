#include "core/optim/batch_norm.h"

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {

void FoldStatistics(absl::Span<const float> seen, absl::Span<float> running) {
  PACELINE_CHECK(
      seen.size() == running.size(),
      absl::StrCat("seen=", seen.size(), " running=", running.size()));
  for (size_t i = 0; i < running.size(); ++i) {
    running[i] =
        (1 - kBatchNormMomentum) * running[i] + kBatchNormMomentum * seen[i];
  }
}

}  // namespace paceline
