#include "worker/data/walk_source.h"

#include <utility>

#include "absl/status/status.h"
#include "core/base/status_macros.h"

namespace paceline {

WalkSource::WalkSource(const TrainSpec& train,
                       std::unique_ptr<const SampleSet> samples,
                       int prefetch_threads, Turns turns)
    : turns_(std::move(turns)),
      test_samples_(samples->samples(BatchPhase::kEvaluate)),
      walk_(train, samples->samples(BatchPhase::kTrain), test_samples_),
      prefetcher_(train, std::move(samples), prefetch_threads, turns_) {}

absl::StatusOr<std::optional<BatchInfo>> WalkSource::NextBatch() {
  while (remaining_ > 0) {
    PACELINE_RETURN_IF_ERROR(NextMicroBatch().status());
  }
  std::optional<WalkBatch> batch;
  do {
    batch = walk_.Next();
    if (!batch) return std::optional<BatchInfo>();
  } while (!turns_.Has(batch->info.ordinal));
  remaining_ = batch->info.micro_batches;
  return batch->info;
}

absl::StatusOr<TensorList> WalkSource::NextMicroBatch() {
  if (remaining_ == 0) {
    return absl::FailedPreconditionError(
        "all micro-batches of this batch were taken; ask for the next batch");
  }
  --remaining_;
  return prefetcher_.Next();
}

}  // namespace paceline
