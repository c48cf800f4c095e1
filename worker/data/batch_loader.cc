#include "worker/data/batch_loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace paceline {

BatchLoader::BatchLoader(const TrainSpec& train,
                         std::unique_ptr<const SampleSet> samples, int threads,
                         Turns turns)
    : train_(train),
      samples_(std::move(samples)),
      turns_(std::move(turns)),
      capacity_(
          MicroBatchesAhead(samples_->format(), train.micro_batch, threads)),
      steps_(train, samples_->samples(BatchPhase::kTrain), test_samples()) {
  for (int i = 0; i < threads; ++i) {
    loaders_.emplace_back(absl::StrCat("data-", i), [this] { RunLoader(); });
  }
}

BatchLoader::~BatchLoader() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

void BatchLoader::BeginAt(int64_t step) {
  absl::MutexLock lock(&mutex_);
  BeginAtLocked(step);
}

void BatchLoader::BeginAtLocked(int64_t step) {
  DropLocked(claimed_ - taken_ + static_cast<int64_t>(tasks_.size()));
  batches_.clear();
  remaining_ = 0;
  begun_ = true;
  walk_.emplace(train_, samples_->samples(BatchPhase::kTrain), test_samples(),
                step);
}

absl::StatusOr<std::optional<BatchInfo>> BatchLoader::NextBatch() {
  absl::MutexLock lock(&mutex_);
  if (!begun_) BeginAtLocked(0);
  DropLocked(std::exchange(remaining_, 0));
  if (batches_.empty() && !WalkOnLocked()) return std::optional<BatchInfo>();
  const BatchInfo batch = batches_.front();
  batches_.pop_front();
  remaining_ = batch.micro_batches;
  return batch;
}

BatchInfo BatchLoader::Training(int64_t step) const {
  return steps_.Training(step).info;
}

BatchInfo BatchLoader::Evaluation(int64_t steps) const {
  return steps_.Evaluation(steps).info;
}

void BatchLoader::Prepare(const BatchInfo& batch,
                          const std::vector<int>& micro_batches) {
  const WalkBatch whole = batch.phase == BatchPhase::kTrain
                              ? steps_.Training(batch.step)
                              : steps_.Evaluation(batch.step);
  absl::MutexLock lock(&mutex_);
  if (whole.info == prepared_ && micro_batches == prepared_list_ &&
      remaining_ == std::ssize(micro_batches)) {
    return;
  }
  DropLocked(claimed_ - taken_ + static_cast<int64_t>(tasks_.size()));
  begun_ = true;
  walk_.reset();
  batches_.clear();
  for (const int micro_batch : micro_batches) {
    PACELINE_CHECK(micro_batch >= 0 && micro_batch < whole.info.micro_batches,
                   absl::StrCat("micro_batch=", micro_batch,
                                " of=", whole.info.micro_batches));
    tasks_.push_back({whole, micro_batch});
  }
  remaining_ = std::ssize(micro_batches);
  prepared_ = whole.info;
  prepared_list_ = micro_batches;
}

absl::StatusOr<TensorList> BatchLoader::NextMicroBatch() {
  const auto is_ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return ready_.contains(taken_);
  };
  Task task;
  {
    absl::MutexLock lock(&mutex_);
    if (remaining_ == 0) {
      return absl::FailedPreconditionError(
          "all micro-batches of this batch were taken; ask for the next batch");
    }
    --remaining_;
    if (!loaders_.empty()) {
      mutex_.Await(absl::Condition(&is_ready));
      return std::move(ready_.extract(taken_++).mapped());
    }
    task = ClaimLocked();
    ++taken_;
  }
  MicroBatchPlace place;
  {
    absl::MutexLock lock(&claim_mutex_);
    place = PlaceOf(task);
  }
  return LoadMicroBatch(*samples_, place);
}

// Adds the tasks of the walk's next batch that is this worker's.  False: the
// walk is over.
bool BatchLoader::WalkOnLocked() {
  if (!walk_.has_value()) return false;
  std::optional<WalkBatch> batch;
  do {
    batch = walk_->Next();
  } while (batch.has_value() && !turns_.Has(batch->info.ordinal));
  if (!batch.has_value()) {
    walk_.reset();
    return false;
  }
  batches_.push_back(batch->info);
  for (int i = 0; i < batch->info.micro_batches; ++i) {
    tasks_.push_back({*batch, i});
  }
  return true;
}

// A loader may still be at one of them: what it brings is dropped then.
void BatchLoader::DropLocked(int64_t micro_batches) {
  taken_ += micro_batches;
  const int64_t unclaimed = std::max<int64_t>(0, taken_ - claimed_);
  tasks_.erase(tasks_.begin(), tasks_.begin() + unclaimed);
  claimed_ += unclaimed;
  ready_.erase(ready_.begin(), ready_.lower_bound(taken_));
}

BatchLoader::Task BatchLoader::ClaimLocked() {
  const Task task = tasks_.front();
  tasks_.pop_front();
  ++claimed_;
  return task;
}

// O(its samples), and O(training samples) where the epoch is not that of the
// task before.
MicroBatchPlace BatchLoader::PlaceOf(const Task& task) {
  const WalkBatch& batch = task.batch;
  const int64_t first = batch.first + task.micro_batch * train_.micro_batch;
  MicroBatchPlace place;
  place.split = batch.info.phase;
  place.epoch = batch.epoch;
  place.indices.resize(
      MicroBatchSamples(batch.info, train_.micro_batch, task.micro_batch));
  if (place.split == BatchPhase::kEvaluate) {
    std::iota(place.indices.begin(), place.indices.end(),
              static_cast<int32_t>(first));
    return place;
  }
  if (epoch_ != batch.epoch) {
    epoch_ = batch.epoch;
    order_.resize(samples_->samples(BatchPhase::kTrain));
    FillSampleOrder(train_.seed, epoch_, absl::MakeSpan(order_));
  }
  std::copy_n(order_.begin() + first, place.indices.size(),
              place.indices.begin());
  return place;
}

// The number of the next task, and its place.  Nothing: the loader stops.
std::optional<int64_t> BatchLoader::AwaitTask(MicroBatchPlace& place) {
  const auto may_go = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (claimed_ - taken_ < capacity_ &&
                         (!tasks_.empty() || walk_.has_value()));
  };
  absl::MutexLock claim(&claim_mutex_);
  Task task;
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    do {
      mutex_.Await(absl::Condition(&may_go));
      if (stopping_) return std::nullopt;
    } while (tasks_.empty() && !WalkOnLocked());
    number = claimed_;
    task = ClaimLocked();
  }
  place = PlaceOf(task);
  return number;
}

// Tasks are claimed in order, so the consumer's next one is always on its way.
void BatchLoader::RunLoader() {
  MicroBatchPlace place;
  while (const std::optional<int64_t> number = AwaitTask(place)) {
    absl::StatusOr<TensorList> tensors = LoadMicroBatch(*samples_, place);
    absl::MutexLock lock(&mutex_);
    if (*number >= taken_) ready_.emplace(*number, std::move(tensors));
  }
}

int64_t MicroBatchesAhead(const SampleFormat& format, int64_t micro_batch,
                          int threads) {
  const int64_t inputs =
      TensorBytes(format.dtype, Batched(micro_batch, format.shape));
  const int64_t labels =
      TensorBytes(DType::kI64, Batched(micro_batch, format.label_shape));
  // Below 0: more than can be counted.
  const int64_t room =
      inputs < 0 || labels < 0
          ? 0
          : kMostBytesAhead / std::max<int64_t>(inputs + labels, 1);
  return std::clamp<int64_t>(room, threads, int64_t{kAheadPerThread} * threads);
}

absl::StatusOr<TensorList> LoadMicroBatch(const SampleSet& samples,
                                          const MicroBatchPlace& place) {
  const auto count = static_cast<int64_t>(place.indices.size());
  const SampleFormat& format = samples.format();
  Tensor inputs = Tensor::Allocate(format.dtype, Batched(count, format.shape));
  Tensor labels =
      Tensor::Allocate(DType::kI64, Batched(count, format.label_shape));
  PACELINE_RETURN_IF_ERROR(samples.Load(place, inputs, labels));
  return TensorList{std::move(inputs), std::move(labels)};
}

}  // namespace paceline
