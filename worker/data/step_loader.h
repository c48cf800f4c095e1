// The StepSource of every data set: any micro-batches of any step, loaded
// ahead.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/tensor.h"
#include "core/base/thread.h"
#include "core/model/batch.h"
#include "core/model/job_spec.h"
#include "worker/data/micro_batch_walk.h"
#include "worker/data/sample_set.h"
#include "worker/step_source.h"

namespace paceline {

// Owns its loader threads ("data-0", ...), which the destructor stops and
// joins.  No more than MicroBatchesAhead() are loaded and not yet taken;
// loaders wait above that.
class StepLoader final : public StepSource {
 public:
  // samples has at least one training sample.  threads: 0 loads in Next(); the
  // tensors do not depend on it.
  StepLoader(const TrainSpec& train, std::unique_ptr<const SampleSet> samples,
             int threads);
  ~StepLoader() override;

  int64_t total_steps() const override { return walk_.total_steps(); }
  int64_t test_samples() const override;
  BatchInfo Training(int64_t step) const override;
  BatchInfo Evaluation(int64_t steps) const override;
  // Asked again for the same, of which nothing was taken: goes on with it.  So
  // a member may prepare its next step before it knows that the view stays.
  void Prepare(const BatchInfo& batch,
               const std::vector<int>& micro_batches) override;
  absl::StatusOr<TensorList> Next() override;
  int64_t unreadable() const override { return samples_->unreadable(); }

 private:
  // One of those prepared.
  struct Task {
    int64_t request = 0;
    size_t place = 0;  // in the list
    WalkBatch batch;
    int micro_batch = 0;
  };

  void RunLoader();
  Task TaskLocked(size_t place) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<TensorList> Load(const Task& task);

  // Constant after construction.
  const std::unique_ptr<const SampleSet> samples_;
  const size_t capacity_;  // micro-batches; 0 without loaders
  const BatchWalk walk_;   // never walked

  // An epoch's shuffle must not hold up the consumer.  Never held together with
  // mutex_.
  absl::Mutex places_mutex_;
  MicroBatchPlaces places_ ABSL_GUARDED_BY(places_mutex_);

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t request_ ABSL_GUARDED_BY(mutex_) = 0;  // counts Prepare()
  WalkBatch batch_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> micro_batches_ ABSL_GUARDED_BY(mutex_);
  size_t claimed_ ABSL_GUARDED_BY(mutex_) = 0;  // of micro_batches_
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<size_t, absl::StatusOr<TensorList>> ready_ ABSL_GUARDED_BY(mutex_);

  std::vector<Thread> loaders_;
};

}  // namespace paceline
