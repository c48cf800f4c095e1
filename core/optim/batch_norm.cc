#include "core/optim/batch_norm.h"

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {
namespace {

// Returns what so many folds leave of the statistics.  Products alone,
// so that all CPUs get the same bits.
float Kept(int folds) {
  float kept = 1;
  for (int i = 0; i < folds; ++i) kept *= 1 - kBatchNormMomentum;
  return kept;
}

}  // namespace

void FoldStatistics(absl::Span<const float> seen, absl::Span<float> running) {
  PACELINE_CHECK(
      seen.size() == running.size(),
      absl::StrCat("seen=", seen.size(), " running=", running.size()));
  for (size_t i = 0; i < running.size(); ++i) {
    running[i] =
        (1 - kBatchNormMomentum) * running[i] + kBatchNormMomentum * seen[i];
  }
}

float StatisticsWeight(int micro_batch, int micro_batches) {
  return kBatchNormMomentum * Kept(micro_batches - 1 - micro_batch);
}

void AddStatistics(absl::Span<const float> seen, float weight,
                   absl::Span<float> sum) {
  PACELINE_CHECK(seen.size() == sum.size(),
                 absl::StrCat("seen=", seen.size(), " sum=", sum.size()));
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * seen[i];
}

void FoldSum(absl::Span<const float> sum, float weight, int micro_batches,
             absl::Span<float> running) {
  PACELINE_CHECK(sum.size() == running.size(),
                 absl::StrCat("sum=", sum.size(), " running=", running.size()));
  if (!(weight > 0)) return;
  const float kept = Kept(micro_batches);
  for (size_t i = 0; i < running.size(); ++i) {
    running[i] = kept * running[i] + (1 - kept) * (sum[i] / weight);
  }
}

}  // namespace paceline
