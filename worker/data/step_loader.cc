#include "worker/data/step_loader.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {

StepLoader::StepLoader(const TrainSpec& train,
                       std::unique_ptr<const SampleSet> samples, int threads)
    : samples_(std::move(samples)),
      capacity_(static_cast<size_t>(
          MicroBatchesAhead(samples_->format(), train.micro_batch, threads))),
      walk_(train, samples_->samples(BatchPhase::kTrain),
            samples_->samples(BatchPhase::kEvaluate)),
      places_(train, samples_->samples(BatchPhase::kTrain)) {
  for (int i = 0; i < threads; ++i) {
    loaders_.emplace_back(absl::StrCat("data-", i), [this] { RunLoader(); });
  }
}

StepLoader::~StepLoader() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

int64_t StepLoader::test_samples() const {
  return samples_->samples(BatchPhase::kEvaluate);
}

BatchInfo StepLoader::Training(int64_t step) const {
  return walk_.Training(step).info;
}

BatchInfo StepLoader::Evaluation(int64_t steps) const {
  return walk_.Evaluation(steps).info;
}

void StepLoader::Prepare(const BatchInfo& batch,
                         const std::vector<int>& micro_batches) {
  const WalkBatch whole = batch.phase == BatchPhase::kTrain
                              ? walk_.Training(batch.step)
                              : walk_.Evaluation(batch.step);
  for (const int micro_batch : micro_batches) {
    PACELINE_CHECK(micro_batch >= 0 && micro_batch < whole.info.micro_batches,
                   absl::StrCat("micro_batch=", micro_batch,
                                " of=", whole.info.micro_batches));
  }
  absl::MutexLock lock(&mutex_);
  if (whole.info == batch_.info && micro_batches == micro_batches_ &&
      taken_ == 0) {
    return;
  }
  ++request_;
  batch_ = whole;
  micro_batches_ = micro_batches;
  claimed_ = 0;
  taken_ = 0;
  ready_.clear();
}

absl::StatusOr<TensorList> StepLoader::Next() {
  const auto is_ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return ready_.contains(taken_);
  };
  Task task;
  {
    absl::MutexLock lock(&mutex_);
    if (taken_ == micro_batches_.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "all ", taken_, " micro-batches that were prepared are taken"));
    }
    if (!loaders_.empty()) {
      mutex_.Await(absl::Condition(&is_ready));
      return std::move(ready_.extract(taken_++).mapped());
    }
    task = TaskLocked(taken_++);
  }
  return Load(task);
}

StepLoader::Task StepLoader::TaskLocked(size_t place) const {
  return {request_, place, batch_, micro_batches_[place]};
}

absl::StatusOr<TensorList> StepLoader::Load(const Task& task) {
  MicroBatchPlace place;
  {
    absl::MutexLock lock(&places_mutex_);
    place = places_.Of(task.batch, task.micro_batch);
  }
  return LoadMicroBatch(*samples_, place);
}

// Micro-batches are claimed in order, so the consumer's next one is always on
// its way.
void StepLoader::RunLoader() {
  const auto may_go = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ ||
           (claimed_ < micro_batches_.size() && claimed_ - taken_ < capacity_);
  };
  for (;;) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&may_go));
      if (stopping_) return;
      task = TaskLocked(claimed_++);
    }
    absl::StatusOr<TensorList> tensors = Load(task);
    absl::MutexLock lock(&mutex_);
    if (task.request == request_) {
      ready_.emplace(task.place, std::move(tensors));
    }
  }
}

}  // namespace paceline
