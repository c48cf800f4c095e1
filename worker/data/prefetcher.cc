#include "worker/data/prefetcher.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paceline {
Prefetcher::Prefetcher(const TrainSpec& train,
                       std::unique_ptr<const SampleSet> samples, int threads,
                       Turns turns)
    : samples_(std::move(samples)),
      capacity_(
          MicroBatchesAhead(samples_->format(), train.micro_batch, threads)),
      walk_(train, samples_->samples(BatchPhase::kTrain),
            samples_->samples(BatchPhase::kEvaluate), std::move(turns)),
      end_(std::numeric_limits<int64_t>::max()) {
  for (int i = 0; i < threads; ++i) {
    loaders_.emplace_back(absl::StrCat("data-", i), [this] { RunLoader(); });
  }
}

Prefetcher::~Prefetcher() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

absl::StatusOr<TensorList> Prefetcher::Next() {
  const absl::Status past_the_end =
      absl::FailedPreconditionError("the walk has no further micro-batch");
  if (loaders_.empty()) {
    const std::optional<Task> task = TakeTask();
    if (!task) return past_the_end;
    return LoadMicroBatch(*samples_, task->place);
  }
  const auto decided = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return consumed_ >= end_ || ready_.contains(consumed_);
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&decided));
  if (consumed_ >= end_) return past_the_end;
  return std::move(ready_.extract(consumed_++).mapped());
}

std::optional<Prefetcher::Task> Prefetcher::TakeTask() {
  absl::MutexLock lock(&walk_mutex_);
  std::optional<MicroBatchPlace> place = walk_.Next();
  if (!place) return std::nullopt;
  return Task{tickets_++, *std::move(place)};
}

// A slot is claimed before a ticket is drawn, and tickets ascend: whoever has
// a ticket may deliver, so the consumer's next one is always on its way.
void Prefetcher::RunLoader() {
  while (ClaimSlot()) {
    const std::optional<Task> task = TakeTask();
    if (!task) {
      OnWalkEnd();
      return;
    }
    Deliver(task->ticket, LoadMicroBatch(*samples_, task->place));
  }
}

bool Prefetcher::ClaimSlot() {
  const auto may_go = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || claimed_ - consumed_ < capacity_;
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&may_go));
  if (stopping_) return false;
  ++claimed_;
  return true;
}

void Prefetcher::Deliver(int64_t ticket, absl::StatusOr<TensorList> tensors) {
  absl::MutexLock lock(&mutex_);
  ready_.emplace(ticket, std::move(tensors));
}

void Prefetcher::OnWalkEnd() {
  int64_t end = 0;
  {
    absl::MutexLock lock(&walk_mutex_);
    end = tickets_;
  }
  absl::MutexLock lock(&mutex_);
  end_ = end;
}

}  // namespace paceline
