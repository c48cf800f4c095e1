// The walk of a job: its batches, in order, with their sizes; and how samples
// are spread over the members of a group.  Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

enum class BatchPhase : uint8_t { kTrain = 1, kEvaluate = 2 };

// One batch, as every frame header of it says.
struct BatchInfo {
  int64_t ordinal = 0;  // counts the batches of an attempt, both phases
  BatchPhase phase = BatchPhase::kTrain;
  int64_t step = 0;  // optimizer updates done before this batch
  int32_t micro_batches = 1;
  int64_t samples = 0;       // of the whole batch
  bool final_batch = false;  // none follows
  // An evaluation or nothing follows a training batch: where batches stream
  // without a flush, the pipeline runs empty after this one.
  bool drains = false;
  // Micro-batches of training in the whole job: its updates where each
  // micro-batch is one.  Where the test set is all there is, its micro-batches.
  int64_t total_micro_batches = 0;
  // Micro-batches of training before this batch: the updates so far where each
  // micro-batch is one.
  int64_t first_update = 0;
  // Every stage keeps the state that it has after this batch.
  bool marked = false;
  // The walk ends with this batch, which is final, before its end.
  bool stops = false;

  friend bool operator==(const BatchInfo&, const BatchInfo&) = default;
};

// A batch and which samples it takes: positions [first, first + samples) of
// the epoch's order (training) or of the test set.
struct WalkBatch {
  BatchInfo info;
  int64_t epoch = 0;
  int64_t first = 0;
};

// All batches of a job over a data set of that size: epochs with a last,
// shorter batch; after every `evaluate_every` epochs and after the last step
// the test set.  Ends after total_steps(); where `train` asks for none, the
// test set is all there is.  Thread-compatible.
class BatchWalk {
 public:
  // train_samples > 0, test_samples >= 0 (0: no evaluation).
  //   first_step  the walk begins with what follows so many updates: with the
  //               evaluation where one is due after them; <= total_steps().
  //               Where the test set is all there is: after so many
  //               micro-batches of it, with that ordinal
  //   evaluated   but not with that evaluation
  BatchWalk(const TrainSpec& train, int64_t train_samples, int64_t test_samples,
            int64_t first_step = 0, bool evaluated = false);

  // The next batch; nothing after the final one.
  std::optional<WalkBatch> Next();

  // The training batch after `step` updates, as Next() gives it, but for the
  // ordinal, which is `step`.  0 <= step < total_steps().
  WalkBatch Training(int64_t step) const;
  // The test set as one batch, where one is due after `steps` updates; its
  // ordinal is `steps`.  micro_batches 0: none is.
  WalkBatch Evaluation(int64_t steps) const;

  int64_t total_steps() const { return total_steps_; }
  // Micro-batches of all training batches, or of the test set where that is all
  // there is.
  int64_t total_micro_batches() const { return total_micro_batches_; }

 private:
  bool EvaluationIsDue(int64_t steps) const;
  WalkBatch EvaluationBatch();
  // A batch of so many samples after `steps` updates, as Evaluation() has it.
  WalkBatch BatchOf(BatchPhase phase, int64_t steps, int64_t samples) const;

  const TrainSpec train_;
  const int64_t train_samples_;
  const int64_t test_samples_;
  const int64_t steps_per_epoch_;
  const int64_t total_steps_;
  const int64_t total_micro_batches_;

  int64_t ordinal_ = 0;
  int64_t step_;
  // Where the running evaluation stands; -1: none is running.
  int64_t evaluated_ = -1;
};

// Steps of a job that is `now` and was `before`, over the same data: then it
// had `steps`.  0: not known.
int64_t StepsBeside(const TrainSpec& before, int64_t steps,
                    const TrainSpec& now);

// Says of a job that trains what its writer may not have meant: a batch that is
// larger than the data, a warm-up that does not end, drops and checkpoints that
// never come.
//   samples, steps  0: not known
std::vector<std::string> WalkNotes(const TrainSpec& train, int64_t samples,
                                   int64_t steps);

// Samples of micro-batch i of a batch: all have micro_batch samples but the
// last, which has the rest.
int64_t MicroBatchSamples(const BatchInfo& batch, int64_t micro_batch_size,
                          int micro_batch);

// The epoch's order: a permutation of [0, samples) drawn from (seed, epoch) by
// Fisher and Yates over SplitMix64.  O(samples).
std::vector<int32_t> SampleOrder(int64_t seed, int64_t epoch, int64_t samples);
// The same over the memory of another epoch's order: a large set's has
// gigabytes, of which no two need be there.
void FillSampleOrder(int64_t seed, int64_t epoch, absl::Span<int32_t> order);

// --- how the samples of a data set are spread over a group ---

enum class DistributionKind : uint8_t {
  kIid,        // any member may have any sample
  kByLabel,    // sorted by label and cut into equal parts
  kDirichlet,  // a member's shares of the labels are drawn; small alpha: unlike
  kClustered,  // each half of the members has one half of the labels
  kBalanced,   // every member has the same number of each label
};

struct Distribution {
  DistributionKind kind = DistributionKind::kIid;
  double alpha = 0;  // kDirichlet
};

// "iid", "by-label", "dirichlet(0.1)", "clustered", "balanced".
// Errors: InvalidArgument  none of these, or an alpha that is not above 0
absl::StatusOr<Distribution> FindDistribution(const std::string& text);

// Says what is wrong with data.distribution in this job; empty: nothing.
std::string WhyNoDistribution(const JobSpec& spec);

// Gives every sample to one of `parts` members.  A member gets as many samples
// as it has places in an epoch's batches: micro-batch i of a batch belongs to
// member i mod `parts` (MicroBatchesOf() of members with equal shares).  Every
// machine finds the same parts.  Immutable.
class SampleParts {
 public:
  // labels: one a sample, in [0, classes)
  //   rotates  in every epoch a member has the samples that the next one had
  SampleParts(const Distribution& distribution, const TrainSpec& train,
              int parts, bool rotates, const std::vector<int32_t>& labels);

  // Rearranges an epoch's order so that a member's places have its samples.
  void Arrange(int64_t epoch, absl::Span<int32_t> order) const;

  const std::vector<uint16_t>& part_of() const { return part_of_; }

 private:
  int PartAt(int64_t place, int64_t epoch) const;

  const int64_t batch_;
  const int64_t micro_batch_;
  const int parts_;
  const bool rotates_;
  std::vector<uint16_t> part_of_;  // [samples]
};

}  // namespace paceline
