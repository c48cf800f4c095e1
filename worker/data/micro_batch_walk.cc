#include "worker/data/micro_batch_walk.h"

#include <numeric>
#include <utility>

#include "absl/types/span.h"

namespace paceline {

MicroBatchPlace MicroBatchPlaces::Of(const WalkBatch& batch, int micro_batch) {
  const int64_t first = batch.first + micro_batch * train_.micro_batch;
  MicroBatchPlace place;
  place.split = batch.info.phase;
  place.epoch = batch.epoch;
  place.indices.resize(
      MicroBatchSamples(batch.info, train_.micro_batch, micro_batch));
  if (place.split == BatchPhase::kEvaluate) {
    std::iota(place.indices.begin(), place.indices.end(),
              static_cast<int32_t>(first));
    return place;
  }
  if (epoch_ != batch.epoch) {
    epoch_ = batch.epoch;
    order_.resize(train_samples_);
    FillSampleOrder(train_.seed, epoch_, absl::MakeSpan(order_));
  }
  place.indices.assign(order_.begin() + first,
                       order_.begin() + first + place.indices.size());
  return place;
}

MicroBatchWalk::MicroBatchWalk(const TrainSpec& train, int64_t train_samples,
                               int64_t test_samples, Turns turns)
    : turns_(std::move(turns)),
      walk_(train, train_samples, test_samples),
      places_(train, train_samples) {}

std::optional<MicroBatchPlace> MicroBatchWalk::Next() {
  if (!batch_ || next_micro_batch_ == batch_->info.micro_batches) {
    do {
      batch_ = walk_.Next();
      if (!batch_) return std::nullopt;
    } while (!turns_.Has(batch_->info.ordinal));
    next_micro_batch_ = 0;
  }
  return places_.Of(*batch_, next_micro_batch_++);
}

}  // namespace paceline
