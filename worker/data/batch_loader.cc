#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/base/tensor.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/job/job_keys.h"
#include "core/job/job_model.h"
#include "core/os/thread.h"
#include "core/plan/memory.h"
#include "core/transfer/checksum.h"
#include "worker/data/sample_set.h"
#include "worker/data/synthetic.h"
#include "worker/meters/cpu.h"

namespace paceline {
namespace {

// Owns its loader threads ("data-0", ...), which the destructor stops and
// joins, whether or not everything was taken.  No more than MicroBatchesAhead()
// are loaded and not yet taken; loaders wait above that.
class BatchLoader final : public BatchSource {
 public:
  BatchLoader(const TrainSpec& train, std::unique_ptr<const SampleSet> samples,
              int threads, Turns turns,
              std::unique_ptr<const SampleParts> parts, int64_t order_bytes)
      : train_(train),
        samples_(std::move(samples)),
        turns_(std::move(turns)),
        parts_(std::move(parts)),
        memory_bytes_(samples_->memory_bytes() + order_bytes),
        capacity_(std::max<int64_t>(
            1,
            MicroBatchesAhead(samples_->format(), train.micro_batch, threads))),
        steps_(train, samples_->samples(BatchPhase::kTrain), test_samples()) {
    CountTensorBytes(memory_bytes_);
    for (int i = 0; i < threads; ++i) {
      loaders_.emplace_back(absl::StrCat("data-", i), [this] {
        while (LoadOne()) continue;
      });
    }
  }

  ~BatchLoader() override {
    CountTensorBytes(-memory_bytes_);
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }

  int64_t total_steps() const override { return steps_.total_steps(); }
  int64_t test_samples() const override {
    return samples_->samples(BatchPhase::kEvaluate);
  }
  int64_t memory_bytes() const override { return memory_bytes_; }
  UnreadableSamples Unreadable(BatchPhase split) const override {
    return samples_->Unreadable(split);
  }
  SampleNames TestNames() const override { return samples_->TestNames(); }
  DataFacts Facts() const override { return samples_->facts(); }
  // Reads at most 16 samples, evenly spaced, in the first epoch's form.
  absl::StatusOr<uint64_t> Fingerprint(BatchPhase split) const override {
    constexpr int64_t kProbes = 16;
    const int64_t counts[] = {samples_->samples(BatchPhase::kTrain),
                              samples_->samples(BatchPhase::kEvaluate)};
    Checksum checksum;
    checksum.Update(absl::MakeConstSpan(
        reinterpret_cast<const uint8_t*>(counts), sizeof(counts)));
    const int64_t samples = samples_->samples(split);
    const int64_t apart = (samples + kProbes - 1) / kProbes;
    MicroBatchPlace place{split, 0, {}};
    for (int64_t i = 0; i < samples; i += apart) {
      place.indices.push_back(static_cast<int32_t>(i));
    }
    PACELINE_ASSIGN_OR_RETURN(const TensorList tensors,
                              LoadMicroBatch(*samples_, place));
    for (const Tensor& tensor : tensors) {
      checksum.Update(absl::MakeConstSpan(tensor.data.get(), tensor.bytes()));
    }
    return checksum.Digest();
  }

  void BeginAt(int64_t step, bool evaluated) override {
    absl::MutexLock lock(&mutex_);
    BeginAtLocked(step, evaluated);
  }

  absl::StatusOr<std::optional<BatchInfo>> NextBatch() override {
    absl::MutexLock lock(&mutex_);
    if (!begun_) BeginAtLocked(0, /*evaluated=*/false);
    DropLocked(std::exchange(remaining_, 0));
    if (batches_.empty() && !WalkOnLocked()) return std::optional<BatchInfo>();
    const BatchInfo batch = batches_.front();
    batches_.pop_front();
    remaining_ = 0;
    for (int i = 0; i < batch.micro_batches; ++i) remaining_ += IsOwn(batch, i);
    return batch;
  }

  BatchInfo Training(int64_t step) const override {
    return steps_.Training(step).info;
  }

  BatchInfo Evaluation(int64_t steps) const override {
    return steps_.Evaluation(steps).info;
  }

  void Prepare(const BatchInfo& batch,
               const std::vector<int>& micro_batches) override {
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
                     "micro_batch=", micro_batch,
                     " of=", whole.info.micro_batches);
      tasks_.push_back({whole, micro_batch});
    }
    remaining_ = std::ssize(micro_batches);
    prepared_ = whole.info;
    prepared_list_ = micro_batches;
  }

  absl::StatusOr<TensorList> NextMicroBatch() override {
    const auto is_ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return ready_.contains(taken_);
    };
    {
      absl::MutexLock lock(&mutex_);
      if (remaining_ == 0) {
        return FailedPrecondition(
            "all micro-batches of this batch were taken; ask for the next "
            "batch");
      }
      --remaining_;
    }
    if (loaders_.empty()) LoadOne();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_ready));
    return std::move(ready_.extract(taken_++).mapped());
  }

 private:
  struct Task {
    WalkBatch batch;
    int micro_batch = 0;
  };

  void BeginAtLocked(int64_t step, bool evaluated)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    DropLocked(claimed_ - taken_ + static_cast<int64_t>(tasks_.size()));
    batches_.clear();
    remaining_ = 0;
    begun_ = true;
    walk_.emplace(train_, samples_->samples(BatchPhase::kTrain), test_samples(),
                  step, evaluated);
  }

  // Replicas share out batches, or the micro-batches of each.
  bool IsOwn(const BatchInfo& batch, int micro_batch) const {
    return !turns_.route.begins_anew() ||
           turns_.Has(batch.ordinal, micro_batch);
  }
  // Adds the tasks of the walk's next batch that is this worker's.  False: the
  // walk is over.
  bool WalkOnLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!walk_.has_value()) return false;
    std::optional<WalkBatch> batch;
    do {
      batch = walk_->Next();
    } while (batch.has_value() && !turns_.route.begins_anew() &&
             !turns_.Has(batch->info.ordinal));
    if (!batch.has_value()) {
      walk_.reset();
      return false;
    }
    batches_.push_back(batch->info);
    for (int i = 0; i < batch->info.micro_batches; ++i) {
      if (IsOwn(batch->info, i)) tasks_.push_back({*batch, i});
    }
    return true;
  }

  // A loader may still be at one of them: what it brings is dropped then.
  void DropLocked(int64_t micro_batches) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    taken_ += micro_batches;
    const int64_t unclaimed = std::max<int64_t>(0, taken_ - claimed_);
    tasks_.erase(tasks_.begin(), tasks_.begin() + unclaimed);
    claimed_ += unclaimed;
    ready_.erase(ready_.begin(), ready_.lower_bound(taken_));
  }

  // O(its samples), and O(training samples) where the epoch is not that of the
  // task before.
  MicroBatchPlace PlaceOf(const Task& task)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_) {
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
      if (parts_ != nullptr) parts_->Arrange(epoch_, absl::MakeSpan(order_));
    }
    std::copy_n(order_.begin() + first, place.indices.size(),
                place.indices.begin());
    return place;
  }

  // The number of the next task, and its place.  Nothing: the loader stops.
  std::optional<int64_t> AwaitTask(MicroBatchPlace& place)
      ABSL_LOCKS_EXCLUDED(claim_mutex_, mutex_) {
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
        // A batch may have none for this worker.
        if (tasks_.empty()) WalkOnLocked();
      } while (tasks_.empty());
      number = claimed_++;
      task = tasks_.front();
      tasks_.pop_front();
    }
    place = PlaceOf(task);
    return number;
  }

  // Tasks are claimed in order, so the consumer's next one is always on its
  // way. False: the loader stops.
  bool LoadOne() {
    MicroBatchPlace place;
    const std::optional<int64_t> number = AwaitTask(place);
    if (!number.has_value()) return false;
    absl::StatusOr<TensorList> tensors = LoadMicroBatch(*samples_, place);
    absl::MutexLock lock(&mutex_);
    if (*number >= taken_) ready_.emplace(*number, std::move(tensors));
    return true;
  }

  // Constant after construction.
  const TrainSpec train_;
  const std::unique_ptr<const SampleSet> samples_;
  const Turns turns_;
  const std::unique_ptr<const SampleParts> parts_;
  const int64_t memory_bytes_;
  const int64_t capacity_;  // micro-batches
  const BatchWalk steps_;   // never walked: answers for single steps

  // Loaders take tasks one after the other, so that epochs come in order and
  // each is shuffled once.  The shuffle does not hold up the consumer, who
  // needs mutex_ alone; a loader takes mutex_ under claim_mutex_.
  absl::Mutex claim_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  int64_t epoch_ ABSL_GUARDED_BY(claim_mutex_) = -1;  // whose order_ this is
  std::vector<int32_t> order_ ABSL_GUARDED_BY(claim_mutex_);

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  // Where further tasks come from; nothing: there are none.
  std::optional<BatchWalk> walk_ ABSL_GUARDED_BY(mutex_);
  std::deque<BatchInfo> batches_ ABSL_GUARDED_BY(mutex_);  // not yet begun
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);         // not yet claimed
  // Micro-batches since construction; those dropped count as both.
  int64_t claimed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t remaining_ ABSL_GUARDED_BY(mutex_) = 0;  // to take of the batch
  BatchInfo prepared_ ABSL_GUARDED_BY(mutex_);     // by Prepare()
  std::vector<int> prepared_list_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, absl::StatusOr<TensorList>> ready_ ABSL_GUARDED_BY(mutex_);

  std::vector<Thread> loaders_;
};

}  // namespace

std::unique_ptr<BatchSource> MakeBatchLoader(
    const TrainSpec& train, std::unique_ptr<const SampleSet> samples,
    int threads, const Turns& turns, std::unique_ptr<const SampleParts> parts,
    int64_t order_bytes) {
  return std::make_unique<BatchLoader>(train, std::move(samples), threads,
                                       turns, std::move(parts), order_bytes);
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

std::string ClassesText(const std::vector<std::string>& names) {
  const std::string text = Joined(names, "\n", absl::Utf8SafeCEscape);
  return text.size() <= kMaxClassesBytes
             ? text
             : absl::StrFormat(
                   "%d names, %016x", names.size(),
                   HashBytes(absl::MakeConstSpan(
                       reinterpret_cast<const uint8_t*>(text.data()),
                       text.size())));
}

namespace {

OpenedSet OpenSamples(const JobSpec& spec) {
  const DataSpec& data = spec.data;
  const int64_t seed = spec.train.seed;
  const bool inference = IsInference(spec);
  if (IsSynthetic(data)) return std::make_unique<SyntheticSet>(data, seed);
  if (data.name == "text") return OpenText(data, inference);
  if (data.name == "text-labels" || data.name == "text-pairs") {
    return OpenTextLines(data, inference);
  }
  if (data.name == "imagefolder") return OpenImageFolder(data, seed, inference);
  const bool cifar = data.name == "cifar10" || data.name == "cifar100";
  return cifar ? OpenCifar(data, seed) : OpenIdx(data, MemoryBytes());
}

absl::Status CheckSize(const SampleSet& set, const JobSpec& spec) {
  for (const BatchPhase split : {BatchPhase::kTrain, BatchPhase::kEvaluate}) {
    if (set.samples(split) <= kMostSamplesOfASplit) continue;
    return InvalidArgument(
        spec.data.path, ": has ", set.samples(split), " samples, at most ",
        kMostSamplesOfASplit, " can be numbered; ",
        RemediesFor(spec, {"raise data.block", "take less"}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatchSource(
    const JobSpec& spec, const Turns& turns) {
  PACELINE_ASSIGN_OR_RETURN(std::unique_ptr<SampleSet> samples,
                            OpenSamples(spec));
  PACELINE_RETURN_IF_ERROR(CheckSize(*samples, spec));
  const int64_t order_bytes =
      OrderBytes(spec, samples->samples(BatchPhase::kTrain));
  if (IsInference(spec)) {
    if (samples->samples(BatchPhase::kEvaluate) == 0) {
      return InvalidArgument(
          "data set ", spec.data.name,
          " has no test samples, and these are what an inference job takes",
          UnusedKeys(spec, {{.path = "data.test_fraction"}}).empty()
              ? "; data.test_fraction 1 takes all of a text"
              : "");
    }
    if (spec.infer.samples > 0) samples->LimitTest(spec.infer.samples);
  }
  std::unique_ptr<const SampleParts> parts;
  if (spec.data.distribution != "iid") {
    PACELINE_ASSIGN_OR_RETURN(const Distribution distribution,
                              FindDistribution(spec.data.distribution));
    parts = std::make_unique<SampleParts>(
        distribution, spec.train,
        static_cast<int>(KnownMembers(spec.aggregation)), spec.data.rotate,
        samples->TrainLabels());
  }
  return MakeBatchLoader(spec.train, std::move(samples), spec.data.workers,
                         turns, std::move(parts), order_bytes);
}

}  // namespace paceline
