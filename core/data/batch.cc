#include "core/data/batch.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/base/text.h"

namespace paceline {
namespace {

// Keeps the shuffle's stream apart from others drawn from (seed, small number).
constexpr uint64_t kOrderStream = 0x6f72646572;  // "order"

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0); }

int64_t TotalSteps(const TrainSpec& train, int64_t steps_per_epoch) {
  if (train.steps > 0) return train.steps;
  int64_t steps = 0;
  return __builtin_mul_overflow(train.epochs, steps_per_epoch, &steps)
             ? std::numeric_limits<int64_t>::max()
             : steps;
}

// Micro-batches of the first `steps` training batches.
int64_t MicroBatchesIn(const TrainSpec& train, int64_t train_samples,
                       int64_t steps_per_epoch, int64_t steps) {
  const int64_t batch = CeilDivide(train.batch, train.micro_batch);
  const int64_t last = train_samples - (steps_per_epoch - 1) * train.batch;
  const int64_t epoch =
      (steps_per_epoch - 1) * batch + CeilDivide(last, train.micro_batch);
  int64_t updates = 0;
  if (__builtin_mul_overflow(steps / steps_per_epoch, epoch, &updates) ||
      __builtin_add_overflow(updates, steps % steps_per_epoch * batch,
                             &updates)) {
    return std::numeric_limits<int64_t>::max();
  }
  return updates;
}

}  // namespace

BatchWalk::BatchWalk(const TrainSpec& train, int64_t train_samples,
                     int64_t test_samples, int64_t first_step, bool evaluated)
    : train_(train),
      train_samples_(train_samples),
      test_samples_(test_samples),
      steps_per_epoch_(CeilDivide(train_samples, train.batch)),
      total_steps_(TotalSteps(train, steps_per_epoch_)),
      total_micro_batches_(total_steps_ > 0
                               ? MicroBatchesIn(train, train_samples,
                                                steps_per_epoch_, total_steps_)
                               : CeilDivide(test_samples, train.micro_batch)),
      step_(total_steps_ > 0 ? first_step : 0) {
  PACELINE_CHECK(train_samples > 0 && test_samples >= 0,
                 "train_samples=", train_samples,
                 " test_samples=", test_samples);
  const int64_t last = total_steps_ > 0 ? total_steps_ : total_micro_batches_;
  PACELINE_CHECK(first_step >= 0 && first_step <= last,
                 "first_step=", first_step, " of=", last);
  if (total_steps_ == 0) {
    ordinal_ = first_step;
    const int64_t done = first_step * train.micro_batch;
    if (done < test_samples) evaluated_ = done;
  } else if (EvaluationIsDue(first_step) && !evaluated) {
    evaluated_ = 0;
  }
}

std::optional<WalkBatch> BatchWalk::Next() {
  if (evaluated_ >= 0) return EvaluationBatch();
  if (step_ >= total_steps_) return std::nullopt;
  WalkBatch batch = Training(step_++);
  batch.info.ordinal = ordinal_++;
  if (EvaluationIsDue(step_)) evaluated_ = 0;
  return batch;
}

bool BatchWalk::EvaluationIsDue(int64_t steps) const {
  if (test_samples_ == 0) return false;
  if (steps == total_steps_) return true;
  return steps > 0 && train_.evaluate_every > 0 &&
         steps % steps_per_epoch_ == 0 &&
         steps / steps_per_epoch_ % train_.evaluate_every == 0;
}

WalkBatch BatchWalk::Training(int64_t step) const {
  PACELINE_CHECK(step >= 0 && step < total_steps_, "step=", step,
                 " of=", total_steps_);
  const bool evaluation = EvaluationIsDue(step + 1);
  const int64_t first = step % steps_per_epoch_ * train_.batch;
  WalkBatch batch = BatchOf(BatchPhase::kTrain, step,
                            std::min(train_.batch, train_samples_ - first));
  batch.epoch = step / steps_per_epoch_;
  batch.first = first;
  BatchInfo& info = batch.info;
  info.final_batch = step + 1 == total_steps_ && !evaluation;
  info.drains = info.final_batch || evaluation;
  info.total_micro_batches = total_micro_batches_;
  info.first_update =
      MicroBatchesIn(train_, train_samples_, steps_per_epoch_, step);
  return batch;
}

WalkBatch BatchWalk::Evaluation(int64_t steps) const {
  WalkBatch batch = BatchOf(BatchPhase::kEvaluate, steps,
                            EvaluationIsDue(steps) ? test_samples_ : 0);
  batch.info.final_batch = steps == total_steps_;
  return batch;
}

WalkBatch BatchWalk::EvaluationBatch() {
  WalkBatch batch = BatchOf(BatchPhase::kEvaluate, step_,
                            std::min(train_.batch, test_samples_ - evaluated_));
  batch.first = evaluated_;
  BatchInfo& info = batch.info;
  info.ordinal = ordinal_++;
  evaluated_ += info.samples;
  const bool last_of_evaluation = evaluated_ == test_samples_;
  if (last_of_evaluation) evaluated_ = -1;
  info.final_batch = last_of_evaluation && step_ == total_steps_;
  if (total_steps_ == 0) info.total_micro_batches = total_micro_batches_;
  return batch;
}

WalkBatch BatchWalk::BatchOf(BatchPhase phase, int64_t steps,
                             int64_t samples) const {
  WalkBatch batch;
  batch.epoch = std::max<int64_t>(0, steps - 1) / steps_per_epoch_;
  batch.info.ordinal = steps;
  batch.info.phase = phase;
  batch.info.step = steps;
  batch.info.samples = samples;
  batch.info.micro_batches =
      static_cast<int32_t>(CeilDivide(samples, train_.micro_batch));
  return batch;
}

int64_t StepsBeside(const TrainSpec& before, int64_t steps,
                    const TrainSpec& now) {
  if (now.steps > 0) return now.steps;
  if (before.steps > 0 || before.epochs < 1 || now.batch != before.batch) {
    return 0;
  }
  return TotalSteps(now, steps / before.epochs);
}

std::vector<std::string> WalkNotes(const TrainSpec& train, int64_t samples,
                                   int64_t steps) {
  std::vector<std::string> notes;
  if (samples > 0) steps = TotalSteps(train, CeilDivide(samples, train.batch));
  const bool whole = samples > 0 ? train.batch > samples
                                 : train.steps == 0 && steps == train.epochs;
  if (whole) {
    notes.push_back(absl::StrCat(
        "train.batch is ", train.batch, ", and the data has ",
        samples > 0 ? absl::StrCat(Counted(samples, "sample"), " to train on")
                    : "no more samples to train on",
        ": every batch is all of it, and an epoch is one step"));
  }
  if (steps <= 0) return notes;
  const std::string of_steps =
      absl::StrCat(", and the job has ", Counted(steps, "step"), ": ");
  const LearningRateSpec& rate = train.learning_rate;
  if (rate.warmup_steps >= steps) {
    notes.push_back(absl::StrFormat(
        "train.learning_rate.warmup_steps is %d%sthe learning rate only rises, "
        "up to %.4g",
        rate.warmup_steps, of_steps,
        rate.base * static_cast<double>(steps) /
            static_cast<double>(rate.warmup_steps)));
  } else if (rate.schedule == "step" &&
             rate.warmup_steps + rate.step_every >= steps) {
    notes.push_back(absl::StrCat("train.learning_rate.step_every is ",
                                 rate.step_every, of_steps,
                                 "the learning rate never drops"));
  }
  if (train.checkpoint_every > steps) {
    notes.push_back(absl::StrCat("train.checkpoint_every is ",
                                 train.checkpoint_every, of_steps,
                                 "no checkpoint is made"));
  }
  return notes;
}

int64_t MicroBatchSamples(const BatchInfo& batch, int64_t micro_batch_size,
                          int micro_batch) {
  PACELINE_CHECK(micro_batch >= 0 && micro_batch < batch.micro_batches,
                 "micro_batch=", micro_batch, " of=", batch.micro_batches);
  return std::min(micro_batch_size,
                  batch.samples - micro_batch * micro_batch_size);
}

std::vector<int32_t> SampleOrder(int64_t seed, int64_t epoch, int64_t samples) {
  PACELINE_CHECK(samples >= 0, "samples=", samples);
  std::vector<int32_t> order(samples);
  FillSampleOrder(seed, epoch, absl::MakeSpan(order));
  return order;
}

void FillSampleOrder(int64_t seed, int64_t epoch, absl::Span<int32_t> order) {
  PACELINE_CHECK(std::ssize(order) <= std::numeric_limits<int32_t>::max(),
                 "samples=", order.size());
  std::iota(order.begin(), order.end(), 0);
  SplitMix64 random(MixSeed({kOrderStream, static_cast<uint64_t>(seed),
                             static_cast<uint64_t>(epoch)}));
  for (int64_t i = std::ssize(order) - 1; i > 0; --i) {
    std::swap(order[i], order[random.Below(i + 1)]);
  }
}

}  // namespace paceline
