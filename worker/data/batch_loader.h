// The BatchSource of every data set: loads micro-batches ahead of the compute
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/tensor.h"
#include "core/data/batch.h"
#include "core/job/spec/job_spec.h"
#include "core/os/thread.h"
#include "core/schedule/route.h"
#include "worker/data/sample_set.h"
#include "worker/pipeline/batch_source.h"

namespace paceline {

// Owns its loader threads ("data-0", ...), which the destructor stops and
// joins, whether or not everything was taken.  No more than MicroBatchesAhead()
// are loaded and not yet taken; loaders wait above that.
class BatchLoader final : public BatchSource {
 public:
  // samples has at least one training sample.
  //   threads  0: the caller's thread loads.  The tensors do not depend on it
  //   turns    the batches that the walk takes
  //   parts    which member sees which samples; null: all see all
  //   order_bytes  of the order of an epoch; see core/plan/memory.h
  BatchLoader(const TrainSpec& train, std::unique_ptr<const SampleSet> samples,
              int threads, Turns turns = {},
              std::unique_ptr<const SampleParts> parts = nullptr,
              int64_t order_bytes = 0);
  ~BatchLoader() override;

  int64_t total_steps() const override { return steps_.total_steps(); }
  int64_t test_samples() const override {
    return samples_->samples(BatchPhase::kEvaluate);
  }
  int64_t memory_bytes() const override { return memory_bytes_; }
  UnreadableSamples Unreadable(BatchPhase split) const override {
    return samples_->Unreadable(split);
  }
  SampleNames TestNames() const override {
    return samples_->TestNames(test_samples());
  }
  DataFacts Facts() const override { return samples_->facts(); }
  // Reads at most 16 samples, evenly spaced, in the first epoch's form.
  absl::StatusOr<uint64_t> Fingerprint(BatchPhase split) const override;
  void BeginAt(int64_t step, bool evaluated) override;
  absl::StatusOr<std::optional<BatchInfo>> NextBatch() override;
  BatchInfo Training(int64_t step) const override;
  BatchInfo Evaluation(int64_t steps) const override;
  void Prepare(const BatchInfo& batch,
               const std::vector<int>& micro_batches) override;
  absl::StatusOr<TensorList> NextMicroBatch() override;

 private:
  struct Task {
    WalkBatch batch;
    int micro_batch = 0;
  };

  void BeginAtLocked(int64_t step, bool evaluated)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Replicas share out batches, or the micro-batches of each.
  bool IsOwn(const BatchInfo& batch, int micro_batch) const {
    return !turns_.route.begins_anew() ||
           turns_.Has(batch.ordinal, micro_batch);
  }
  bool WalkOnLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropLocked(int64_t micro_batches) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Task ClaimLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MicroBatchPlace PlaceOf(const Task& task)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  std::optional<int64_t> AwaitTask(MicroBatchPlace& place)
      ABSL_LOCKS_EXCLUDED(claim_mutex_, mutex_);
  void RunLoader();

  // Constant after construction.
  const TrainSpec train_;
  const std::unique_ptr<const SampleSet> samples_;
  const Turns turns_;
  const std::unique_ptr<const SampleParts> parts_;
  const int64_t memory_bytes_;
  const int64_t capacity_;  // micro-batches; 0 without loaders
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

// Opens spec.data, to be taken in the batches of spec.train, or of its walk
// those that `turns` has.  README.md says what each data set reads.  Looks at
// every label but at no picture, so call it off the control threads.
//
// Errors (the message names the file and what to do):
//   NotFound         a file is missing
//   PermissionDenied a file may not be read
//   InvalidArgument  unknown data set, a bad spec; a file that is not what it
//                    should be, is cut short, holds other sizes than spec.data
//                    says, or a label that is no class
absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatchSource(
    const JobSpec& spec, const Turns& turns = {});

}  // namespace paceline
