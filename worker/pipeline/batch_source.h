// The interface through which a run gets its micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/data/batch.h"

namespace paceline {

// Names of samples and classes for a person, a line each; empty: there are
// none.
struct SampleNames {
  std::string files;    // in the order of the samples
  std::string classes;  // by number
};

// Opening the data has found this out.
struct DataFacts {
  // As v1::NameBytes.classes says; empty: labels are only numbers.
  std::string classes;
  // As v1::Inputs.contents says; 0: not known.
  uint64_t contents = 0;
  // Says of what is there and not used, and of what looks wrong; a sentence
  // each.
  std::vector<std::string> notes;
};

// Samples of a split that could not be read.
struct UnreadableSamples {
  int64_t of = 0;                // samples of the split, read or not
  std::vector<int32_t> numbers;  // theirs in the split, ascending
};

// A pipeline walks over the job's batches with NextBatch().  A member of a
// round group picks micro-batches of any step with Prepare().  Both then take
// the same samples in the same order, cut the same way.  The compute thread
// alone uses a source; loaders work ahead on threads of their own.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Updates in the whole job.
  virtual int64_t total_steps() const = 0;
  // Samples of the test set that a walk over it takes.
  virtual int64_t test_samples() const = 0;
  // Bytes that it keeps for as long as it lives, beside micro-batches.
  virtual int64_t memory_bytes() const { return 0; }
  // Samples of `split` so far that could not be read and were left out.
  virtual UnreadableSamples Unreadable(BatchPhase /*split*/) const {
    return {};
  }
  // The names of these samples of the test set.
  virtual SampleNames TestNames() const { return {}; }

  virtual DataFacts Facts() const { return {}; }

  // Says by which samples of `split`, and by how many of each split there are,
  // two data sets can be told apart: XXH3-64; 0: not known.  Reads some.
  // Errors: those of NextMicroBatch()
  virtual absl::StatusOr<uint64_t> Fingerprint(BatchPhase /*split*/) const {
    return 0;
  }

  // Begins the walk with what follows `step` updates, but not with an
  // evaluation that is `evaluated` (BatchWalk); a source of which nothing was
  // asked walks from step 0.
  virtual void BeginAt(int64_t step, bool evaluated) = 0;
  // Returns the next batch of the walk; nothing after the final one.  Drops
  // micro-batches of the batch before that were not taken.
  virtual absl::StatusOr<std::optional<BatchInfo>> NextBatch() = 0;

  // The training batch after `step` updates; 0 <= step < total_steps().
  virtual BatchInfo Training(int64_t step) const = 0;
  // The whole test set as one batch where one is due after `steps` updates;
  // micro_batches 0: none is due.
  virtual BatchInfo Evaluation(int64_t steps) const = 0;
  // Begins to load these micro-batches of `batch`, ascending.  What was being
  // loaded and not taken is dropped; but the same request again, of which
  // nothing was taken, goes on.
  virtual void Prepare(const BatchInfo& batch,
                       const std::vector<int>& micro_batches) = 0;

  // The next micro-batch of the batch, or of those prepared.  The two tensors
  // are as FormatOf() of the job's data says, with n samples each: the inputs
  // [n, ...] float32 or tokens [n, block] int64, and the labels, [n] or
  // [n, block], int64.  Evaluation may have labels of kNoLabel.  Waits for the
  // loader.
  // Errors: FailedPrecondition  all were taken; DataLoss  files changed, or too
  //         many of them cannot be read
  virtual absl::StatusOr<TensorList> NextMicroBatch() = 0;
};

}  // namespace paceline
