// Loads a job's micro-batches ahead of the compute thread, in the walk's order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/tensor.h"
#include "core/base/thread.h"
#include "core/model/job_spec.h"
#include "worker/data/micro_batch_walk.h"
#include "worker/data/sample_set.h"

namespace paceline {

// Thread-safe; Next() is meant for one consumer.  Owns its loader threads
// ("data-0", ...), which the destructor stops and joins whether or not
// everything was consumed.  No more than MicroBatchesAhead() are loaded and not
// yet taken; loaders wait above that.
class Prefetcher {
 public:
  // threads: 0 loads in Next(), on the caller's thread.  The tensors do not
  // depend on it.
  //   turns  the batches that are loaded
  Prefetcher(const TrainSpec& train, std::unique_ptr<const SampleSet> samples,
             int threads, Turns turns = {});
  ~Prefetcher();

  // The next micro-batch of the walk: samples and labels as the set's format()
  // says, n of each.  Waits for a loader.
  // Errors: FailedPrecondition  after the last one; those of SampleSet::Load.
  absl::StatusOr<TensorList> Next();

  // Of the samples, as SampleSet has it.
  int64_t unreadable() const { return samples_->unreadable(); }

 private:
  // What a loader works on: the ticket numbers micro-batches in walk order.
  struct Task {
    int64_t ticket = 0;
    MicroBatchPlace place;
  };

  std::optional<Task> TakeTask();
  void RunLoader();
  bool ClaimSlot();
  void Deliver(int64_t ticket, absl::StatusOr<TensorList> tensors);
  void OnWalkEnd();

  // Constant after construction.
  const std::unique_ptr<const SampleSet> samples_;
  const int64_t capacity_;  // slots; 0 without loaders

  // The walk has a lock of its own: an epoch's shuffle must not hold up the
  // consumer.  Never held together with mutex_.
  absl::Mutex walk_mutex_;
  MicroBatchWalk walk_ ABSL_GUARDED_BY(walk_mutex_);
  int64_t tickets_ ABSL_GUARDED_BY(walk_mutex_) = 0;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t claimed_ ABSL_GUARDED_BY(mutex_) = 0;   // slots, by loaders
  int64_t consumed_ ABSL_GUARDED_BY(mutex_) = 0;  // micro-batches, by Next()
  int64_t end_ ABSL_GUARDED_BY(mutex_);           // micro-batches in all
  std::map<int64_t, absl::StatusOr<TensorList>> ready_ ABSL_GUARDED_BY(mutex_);

  std::vector<Thread> loaders_;
};

}  // namespace paceline
