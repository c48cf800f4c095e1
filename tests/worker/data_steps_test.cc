// Any step's micro-batches, as a member of a round group asks for them: the
// bytes are those of the walk.
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/worker/synthetic_job.h"
#include "worker/data/open.h"
#include "worker/data/step_loader.h"

namespace paceline {
namespace {

JobSpec Synthetic(int threads) {
  JobSpec spec = SyntheticJob(threads);
  spec.train.evaluate_every = 2;
  return spec;
}

std::string BytesOf(const TensorList& tensors) {
  std::string bytes;
  for (const Tensor& tensor : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.data.get()),
                 tensor.bytes());
  }
  return bytes;
}

// Of each micro-batch, in the walk's order.
struct Walked {
  std::vector<BatchInfo> training;
  std::vector<std::vector<std::string>> bytes;               // of training
  std::vector<std::pair<int64_t, std::string>> evaluations;  // steps, all bytes
};

Walked Walk(const JobSpec& spec) {
  Walked walked;
  const auto source = OpenBatchSource(spec).value();
  while (const auto batch = source->NextBatch().value()) {
    std::vector<std::string> bytes;
    for (int i = 0; i < batch->micro_batches; ++i) {
      bytes.push_back(BytesOf(source->NextMicroBatch().value()));
    }
    if (batch->phase == BatchPhase::kTrain) {
      walked.training.push_back(*batch);
      walked.bytes.push_back(bytes);
      continue;
    }
    if (walked.evaluations.empty() ||
        walked.evaluations.back().first != batch->step) {
      walked.evaluations.emplace_back(batch->step, "");
    }
    for (const std::string& each : bytes) {
      walked.evaluations.back().second += each;
    }
  }
  return walked;
}

std::vector<int> AllOf(const BatchInfo& batch) {
  std::vector<int> all(batch.micro_batches);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(StepSource, GivesTheBytesOfTheWalkInAnyOrderOfSteps) {
  for (const int threads : {0, 1, 3}) {
    const Walked walked = Walk(Synthetic(threads));
    const auto source = OpenStepSource(Synthetic(threads)).value();
    const int64_t steps = source->total_steps();
    ASSERT_EQ(steps, std::ssize(walked.training));

    for (int64_t i = 0; i < 2 * steps; ++i) {
      const int64_t step = i * 7 % steps;  // over epochs, back and forth
      BatchInfo batch = source->Training(step);
      source->Prepare(batch, AllOf(batch));
      std::vector<std::string> bytes;
      for (int m = 0; m < batch.micro_batches; ++m) {
        bytes.push_back(BytesOf(source->Next().value()));
      }

      EXPECT_EQ(bytes, walked.bytes[step]) << step;
      batch.ordinal = walked.training[step].ordinal;
      EXPECT_EQ(batch, walked.training[step]) << step;
    }
  }
}

TEST(StepSource, GivesAMembersMicroBatchesAlone) {
  const Walked walked = Walk(Synthetic(2));
  const auto source = OpenStepSource(Synthetic(2)).value();

  source->Prepare(source->Training(5), {1, 3});

  EXPECT_EQ(BytesOf(source->Next().value()), walked.bytes[5][1]);
  EXPECT_EQ(BytesOf(source->Next().value()), walked.bytes[5][3]);
  EXPECT_TRUE(absl::IsFailedPrecondition(source->Next().status()));
}

TEST(StepSource, EvaluatesWhereTheWalkDoesOverTheWholeTestSet) {
  JobSpec spec = Synthetic(1);
  spec.train.micro_batch = 4;  // of which the walk's batches are multiples
  const Walked walked = Walk(spec);
  const auto source = OpenStepSource(spec).value();
  EXPECT_EQ(source->test_samples(), 17);

  std::vector<int64_t> due;
  for (int64_t steps = 0; steps <= source->total_steps(); ++steps) {
    const BatchInfo batch = source->Evaluation(steps);
    if (batch.micro_batches == 0) continue;
    EXPECT_EQ(batch.phase, BatchPhase::kEvaluate);
    EXPECT_EQ(batch.samples, 17);
    EXPECT_EQ(batch.final_batch, steps == source->total_steps());
    source->Prepare(batch, AllOf(batch));
    std::string bytes;
    for (int i = 0; i < batch.micro_batches; ++i) {
      bytes += BytesOf(source->Next().value());
    }
    ASSERT_LT(due.size(), walked.evaluations.size());
    EXPECT_EQ(steps, walked.evaluations[due.size()].first);
    EXPECT_EQ(bytes, walked.evaluations[due.size()].second);
    due.push_back(steps);
  }
  EXPECT_EQ(due.size(), walked.evaluations.size());
}

TEST(StepSource, WhatIsPreparedTakesThePlaceOfWhatWasNotTaken) {
  for (const int threads : {0, 2}) {
    const Walked walked = Walk(Synthetic(threads));
    const auto source = OpenStepSource(Synthetic(threads)).value();
    const BatchInfo batch = source->Training(2);
    source->Prepare(batch, {0, 1, 2});
    ASSERT_TRUE(source->Next().ok());

    source->Prepare(batch, {0, 1, 2});

    EXPECT_EQ(BytesOf(source->Next().value()), walked.bytes[2][0]);
    source->Prepare(source->Training(0), {2});
    EXPECT_EQ(BytesOf(source->Next().value()), walked.bytes[0][2]);
    EXPECT_TRUE(absl::IsFailedPrecondition(source->Next().status()));
  }
}

TEST(StepSource, RefusesAJobThatOnlyInfers) {
  JobSpec spec = Synthetic(1);
  spec.kind = kInferKind;

  EXPECT_TRUE(absl::IsInvalidArgument(OpenStepSource(spec).status()));
}

// A data set that counts what is loaded, and may hold loaders up.
class CountingSet final : public SampleSet {
 public:
  // values: of a sample; none is ever written.
  explicit CountingSet(int64_t values = 1)
      : format_{DType::kF32, {values}, {}} {}

  int64_t samples(BatchPhase) const override { return 40; }
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor&,
                    Tensor&) const override {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&open_));
    ++loads_;
    return place.indices.empty() ? absl::DataLossError("none")
                                 : absl::OkStatus();
  }
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  int AwaitLoads(int count) const {
    const auto reached = [this, count]() { return loads_ >= count; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&reached));
    return loads_;
  }

 private:
  const SampleFormat format_;
  mutable absl::Mutex mutex_;
  bool open_ = true;
  mutable int loads_ = 0;
};

TrainSpec FourMicroBatches() {
  TrainSpec train;
  train.batch = 20;
  train.micro_batch = 5;
  return train;
}

TEST(StepLoader, AskedAgainForTheSameLoadsNothingTwice) {
  auto owned = std::make_unique<CountingSet>();
  CountingSet& set = *owned;
  StepLoader loader(FourMicroBatches(), std::move(owned), 1);
  const BatchInfo batch = loader.Training(0);
  loader.Prepare(batch, {0, 2});
  EXPECT_EQ(set.AwaitLoads(2), 2);

  loader.Prepare(batch, {0, 2});
  ASSERT_TRUE(loader.Next().ok());
  ASSERT_TRUE(loader.Next().ok());

  loader.Prepare(batch, {3});
  ASSERT_TRUE(loader.Next().ok());
  EXPECT_EQ(set.AwaitLoads(3), 3);
}

TEST(StepLoader, LoadsFewerAheadWhereTheyAreLarge) {
  // 320 MiB a micro-batch: one a thread.
  auto owned = std::make_unique<CountingSet>(1 << 24);
  CountingSet& set = *owned;
  StepLoader loader(FourMicroBatches(), std::move(owned), 1);

  int loads = 0;
  for (int64_t step = 0; step < 2; ++step) {
    loader.Prepare(loader.Training(step), {0, 1, 2, 3});
    for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
      ++loads;
      EXPECT_EQ(set.AwaitLoads(loads), loads);
      ASSERT_TRUE(loader.Next().ok());
    }
  }
}

TEST(StepLoader, StopsWhileMuchIsPreparedAndNothingTaken) {
  auto owned = std::make_unique<CountingSet>();
  CountingSet& set = *owned;
  owned->SetOpen(false);
  StepLoader loader(FourMicroBatches(), std::move(owned), 2);
  loader.Prepare(loader.Training(1), {0, 1, 2, 3});

  loader.Prepare(loader.Training(0), {1});
  set.SetOpen(true);

  EXPECT_TRUE(loader.Next().ok());
  loader.Prepare(loader.Training(1), {0, 1, 2, 3});
}

}  // namespace
}  // namespace paceline
