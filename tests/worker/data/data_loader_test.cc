// The loader: the same tensors whatever loads them, walked from any step or
// asked for by step, and an end that nobody waits for.
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/tensor.h"
#include "core/os/thread.h"
#include "gtest/gtest.h"
#include "tests/worker/control/synthetic_job.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/sample_set.h"

namespace paceline {
namespace {

JobSpec Synthetic(int threads) {
  JobSpec spec = SyntheticJob(threads);
  spec.train.evaluate_every = 2;
  return spec;
}

std::string NextBytes(BatchSource& source) {
  return BytesOf({source.NextMicroBatch().value()});
}

struct Walked {
  std::vector<BatchInfo> training;
  std::vector<std::vector<std::string>> bytes;  // of each micro-batch of these
  std::vector<std::pair<int64_t, std::string>> evaluations;  // steps, all bytes
};

Walked Walk(BatchSource& source) {
  Walked walked;
  while (const auto batch = source.NextBatch().value()) {
    std::vector<std::string> bytes;
    for (int i = 0; i < batch->micro_batches; ++i) {
      bytes.push_back(NextBytes(source));
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

Walked WalkOf(const JobSpec& spec) {
  return Walk(*OpenBatchSource(spec).value());
}

std::vector<int> AllOf(const BatchInfo& batch) {
  std::vector<int> all(batch.micro_batches);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// A data set of which a test decides what loading does.
class ScriptedSet final : public SampleSet {
 public:
  // values: of a sample; only the first is ever written.
  explicit ScriptedSet(int64_t values = 1)
      : SampleSet({DType::kF32, {values}, {}}, 100, 0) {}

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&open_));
    ++loads_;
    for (size_t i = 0; i < place.indices.size(); ++i) {
      inputs.As<float>()[i] = static_cast<float>(place.indices[i]);
      labels.As<int64_t>()[i] = place.indices[i];
    }
    if (loads_ == fail_at_) return absl::DataLossError("bad sector");
    return absl::OkStatus();
  }

  // Waits for so many; returns how many there are then.
  int AwaitLoads(int count) const {
    const auto reached = [this, count]() { return loads_ >= count; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&reached));
    return loads_;
  }
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  void FailAt(int load) { fail_at_ = load; }

 private:
  int fail_at_ = -1;
  mutable absl::Mutex mutex_;
  mutable int loads_ = 0;
  bool open_ = true;
};

// A loader over a ScriptedSet of a hundred samples.
struct Scripted {
  explicit Scripted(int threads, int64_t values = 1, int64_t batch = 1)
      : owned(std::make_unique<ScriptedSet>(values)),
        set(*owned),
        source(MakeBatchLoader(
            [batch] {
              TrainSpec train;
              train.batch = batch;
              train.micro_batch = 1;
              return train;
            }(),
            std::move(owned), threads)) {}
  // The next one of a walk of batches of one micro-batch.
  absl::StatusOr<TensorList> Next() {
    EXPECT_TRUE(loader.NextBatch().value().has_value());
    return loader.NextMicroBatch();
  }

  std::unique_ptr<ScriptedSet> owned;  // empty once the loader has it
  ScriptedSet& set;
  std::unique_ptr<BatchSource> source;
  BatchSource& loader = *source;
};

// So many float32 values and a label, a sample a micro-batch, have 64 MiB.
constexpr int64_t kValuesOf64MiB = (int64_t{64} << 20) / 4 - 2;

// Batches in which no sample of another's turn is.
TEST(BatchLoader, OfAReplicaWalksItsOwnBatchesOnly) {
  JobSpec spec = SyntheticJob(2);
  spec.kind = kInferKind;
  spec.infer.micro_batch = 5;
  spec.train = ForInference(spec.infer, 1);
  const auto walk = [&spec](const Turns& turns) {
    const auto source = OpenBatchSource(spec, turns).value();
    EXPECT_EQ(source->test_samples(), 17);
    std::map<int64_t, std::string> batches;
    while (const auto batch = source->NextBatch().value()) {
      batches[batch->ordinal] = NextBytes(*source);
      EXPECT_EQ(batch->total_micro_batches, 4);
    }
    return batches;
  };
  const std::map<int64_t, std::string> all = walk({});
  ASSERT_EQ(all.size(), 4u);
  const std::map<int64_t, std::string> first = walk({RouteTable({0, 1, 0}), 0});
  const std::map<int64_t, std::string> second =
      walk({RouteTable({0, 1, 0}), 1});

  std::map<int64_t, std::string> together = first;
  together.insert(second.begin(), second.end());
  EXPECT_EQ(together, all);
  EXPECT_EQ(second.size(), 1u);
  EXPECT_EQ(second.count(1), 1u);
}

TEST(BatchLoader, GivesTheSameBytesWhateverTheNumberOfThreads) {
  const std::string alone =
      BytesOf(WalkAll(*OpenBatchSource(SyntheticJob(0)).value()));

  // 3 epochs of 50 + 17 samples of 9 float32 and a label.
  EXPECT_EQ(alone.size(), 3u * 67 * (9 * 4 + 8));
  for (const int threads : {1, 2, 3, 8}) {
    const auto source = OpenBatchSource(SyntheticJob(threads)).value();
    EXPECT_EQ(source->total_steps(), 12);
    EXPECT_TRUE(BytesOf(WalkAll(*source)) == alone) << threads;
  }
}

TEST(BatchLoader, VisitsEverySampleOnceAnEpoch) {
  Scripted scripted(2);
  std::set<int64_t> seen;
  for (int i = 0; i < 100; ++i) {
    seen.insert(scripted.Next().value()[1].As<int64_t>()[0]);
  }

  EXPECT_EQ(seen.size(), 100u);
}

TEST(BatchLoader, BeginsItsWalkAtAnyStep) {
  for (const int threads : {0, 3}) {
    const Walked whole = WalkOf(Synthetic(threads));
    const auto source = OpenBatchSource(Synthetic(threads)).value();
    const auto steps = static_cast<int64_t>(whole.training.size());
    for (const int64_t step : {5, 0, 8, 12}) {
      source->BeginAt(step, false);
      const Walked rest = Walk(*source);

      ASSERT_EQ(std::ssize(rest.bytes), steps - step);
      EXPECT_TRUE(std::equal(rest.bytes.begin(), rest.bytes.end(),
                             whole.bytes.begin() + step));
      const auto due =
          std::find_if(whole.evaluations.begin(), whole.evaluations.end(),
                       [step](const auto& one) { return one.first >= step; });
      EXPECT_TRUE(std::equal(rest.evaluations.begin(), rest.evaluations.end(),
                             due, whole.evaluations.end()));
    }
    // In the middle of another walk too.
    source->BeginAt(0, false);
    ASSERT_TRUE(source->NextBatch().value().has_value());
    ASSERT_TRUE(source->NextMicroBatch().ok());
    source->BeginAt(7, false);
    EXPECT_EQ(source->NextBatch().value()->step, 7);
    EXPECT_EQ(NextBytes(*source), whole.bytes[7][0]);
  }
}

TEST(BatchLoader, RefusesAMicroBatchBeyondTheBatch) {
  for (const int threads : {0, 1}) {
    const auto source = OpenBatchSource(SyntheticJob(threads)).value();
    EXPECT_TRUE(absl::IsFailedPrecondition(source->NextMicroBatch().status()))
        << "before the first batch";
    const int micro_batches = source->NextBatch().value()->micro_batches;
    for (int i = 0; i < micro_batches; ++i) {
      EXPECT_TRUE(source->NextMicroBatch().ok());
    }

    EXPECT_TRUE(absl::IsFailedPrecondition(source->NextMicroBatch().status()));
  }
}

TEST(BatchLoader, DropsMicroBatchesThatNobodyAskedFor) {
  const Walked walked = WalkOf(SyntheticJob(0));
  for (const int threads : {0, 2}) {
    const auto source = OpenBatchSource(SyntheticJob(threads)).value();
    ASSERT_TRUE(source->NextBatch().value().has_value());
    ASSERT_TRUE(source->NextMicroBatch().ok());

    EXPECT_EQ(source->NextBatch().value(), walked.training[1]);
    EXPECT_EQ(NextBytes(*source), walked.bytes[1][0]);
  }
}

TEST(BatchLoader, LoadsAheadButNotWithoutBound) {
  constexpr int kThreads = 2;
  constexpr int kBound = kThreads * kAheadPerThread;
  Scripted scripted(kThreads);
  scripted.loader.BeginAt(0, false);
  EXPECT_EQ(scripted.set.AwaitLoads(kBound), kBound) << "nothing was taken yet";

  EXPECT_TRUE(scripted.Next().ok());

  EXPECT_EQ(scripted.set.AwaitLoads(kBound + 1), kBound + 1);
}

TEST(BatchLoader, CountsTheOrderOfItsSamplesAmongTheRunsMemory) {
  JobSpec spec = Synthetic(0);
  const int64_t before = TensorBytesNow();
  {
    const auto source = OpenBatchSource(spec).value();
    EXPECT_EQ(source->memory_bytes(), 4 * spec.data.train_samples);
    EXPECT_EQ(TensorBytesNow() - before, source->memory_bytes());
  }
  EXPECT_EQ(TensorBytesNow(), before);
}

TEST(BatchLoader, HasTheFingerprintOfItsSamples) {
  const auto of = [](const JobSpec& spec, BatchPhase split) {
    return OpenBatchSource(spec).value()->Fingerprint(split).value();
  };
  const JobSpec spec = Synthetic(1);
  JobSpec drawn = spec;
  ++drawn.train.seed;
  JobSpec longer = spec;
  ++longer.data.test_samples;

  const uint64_t training = of(spec, BatchPhase::kTrain);

  EXPECT_EQ(of(Synthetic(2), BatchPhase::kTrain), training);
  EXPECT_NE(of(drawn, BatchPhase::kTrain), training);
  EXPECT_NE(of(longer, BatchPhase::kTrain), training);
  EXPECT_NE(of(spec, BatchPhase::kEvaluate), training);
}

TEST(MicroBatchesAhead, CountsBytesOfLargeOnesButLeavesOneAThread) {
  const auto ahead = [](int64_t values, int64_t micro_batch, int threads) {
    return MicroBatchesAhead({DType::kF32, {values}, {}}, micro_batch, threads);
  };

  EXPECT_EQ(ahead(1, 1, 0), 0);
  EXPECT_EQ(ahead(1, 1, 3), 12);
  EXPECT_EQ(ahead(kValuesOf64MiB, 1, 1), 4) << "as many as a thread has anyway";
  EXPECT_EQ(ahead(kValuesOf64MiB, 1, 3), 4);
  EXPECT_EQ(ahead(kValuesOf64MiB + 1, 1, 3), 3);
  EXPECT_EQ(ahead(kValuesOf64MiB, 2, 1), 2);
  EXPECT_EQ(ahead(kValuesOf64MiB, 1000, 3), 3);
  EXPECT_EQ(ahead(int64_t{1} << 60, 1 << 20, 3), 3) << "more than an int64";
}

TEST(BatchLoader, LoadsFewerAheadWhereTheyAreLarge) {
  constexpr int kBound = 4;
  Scripted scripted(2, kValuesOf64MiB);
  scripted.loader.BeginAt(0, false);

  for (int taken = 0; taken <= 10; ++taken) {
    EXPECT_EQ(scripted.set.AwaitLoads(taken + kBound), taken + kBound);
    ASSERT_TRUE(scripted.Next().ok());
  }
}

TEST(BatchLoader, EndsWhenNobodyTakesWhatItLoaded) {
  Scripted scripted(3);
  scripted.loader.BeginAt(0, false);

  scripted.set.AwaitLoads(1);  // and drop it, with its threads full or loading
}

TEST(BatchLoader, EndsBeforeAnythingWasAskedFor) { const Scripted scripted(8); }

TEST(BatchLoader, WaitsForAThreadThatIsSlow) {
  Scripted scripted(1);
  scripted.set.SetOpen(false);
  absl::Notification asked;
  absl::StatusOr<TensorList> got = absl::UnknownError("nothing yet");
  Thread consumer("consumer", [&] {
    asked.Notify();
    got = scripted.Next();
  });
  asked.WaitForNotification();

  scripted.set.SetOpen(true);
  consumer.Join();

  EXPECT_TRUE(got.ok()) << got.status();
}

TEST(BatchLoader, HandsAnErrorOutInItsTurn) {
  for (const int threads : {0, 1}) {
    Scripted scripted(threads);
    scripted.set.FailAt(3);

    EXPECT_TRUE(scripted.Next().ok());
    EXPECT_TRUE(scripted.Next().ok());
    EXPECT_EQ(scripted.Next().status().message(), "bad sector");
  }
}

TEST(BatchLoader, SaysWhenTheWalkIsOver) {
  for (const int threads : {0, 1, 3}) {
    Scripted scripted(threads);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(scripted.Next().ok());

    EXPECT_FALSE(scripted.loader.NextBatch().value().has_value());
    EXPECT_FALSE(scripted.loader.NextBatch().value().has_value());
    EXPECT_TRUE(
        absl::IsFailedPrecondition(scripted.loader.NextMicroBatch().status()));
  }
}

TEST(BatchLoader, PreparesTheBytesOfTheWalkInAnyOrderOfSteps) {
  for (const int threads : {0, 1, 3}) {
    const Walked walked = WalkOf(Synthetic(threads));
    const auto source = OpenBatchSource(Synthetic(threads)).value();
    const int64_t steps = source->total_steps();
    ASSERT_EQ(steps, std::ssize(walked.training));

    for (int64_t i = 0; i < 2 * steps; ++i) {
      const int64_t step = i * 7 % steps;  // over epochs, back and forth
      BatchInfo batch = source->Training(step);
      source->Prepare(batch, AllOf(batch));
      std::vector<std::string> bytes;
      for (int m = 0; m < batch.micro_batches; ++m) {
        bytes.push_back(NextBytes(*source));
      }

      EXPECT_EQ(bytes, walked.bytes[step]) << step;
      batch.ordinal = walked.training[step].ordinal;
      EXPECT_EQ(batch, walked.training[step]) << step;
    }
  }
}

TEST(BatchLoader, PreparesAMembersMicroBatchesAlone) {
  const Walked walked = WalkOf(Synthetic(2));
  const auto source = OpenBatchSource(Synthetic(2)).value();

  source->Prepare(source->Training(5), {1, 3});

  EXPECT_EQ(NextBytes(*source), walked.bytes[5][1]);
  EXPECT_EQ(NextBytes(*source), walked.bytes[5][3]);
  EXPECT_TRUE(absl::IsFailedPrecondition(source->NextMicroBatch().status()));
}

TEST(BatchLoader, EvaluatesWhereTheWalkDoesOverTheWholeTestSet) {
  JobSpec spec = Synthetic(1);
  spec.train.micro_batch = 4;  // of which the walk's batches are multiples
  const Walked walked = WalkOf(spec);
  const auto source = OpenBatchSource(spec).value();

  std::vector<std::pair<int64_t, std::string>> due;
  for (int64_t steps = 0; steps <= source->total_steps(); ++steps) {
    const BatchInfo batch = source->Evaluation(steps);
    if (batch.micro_batches == 0) continue;
    EXPECT_EQ(batch.phase, BatchPhase::kEvaluate);
    EXPECT_EQ(batch.samples, 17);
    EXPECT_EQ(batch.final_batch, steps == source->total_steps());
    source->Prepare(batch, AllOf(batch));
    due.emplace_back(steps, "");
    for (int i = 0; i < batch.micro_batches; ++i) {
      due.back().second += NextBytes(*source);
    }
  }
  EXPECT_EQ(due, walked.evaluations);
}

TEST(BatchLoader, WhatIsPreparedTakesThePlaceOfWhatWasNotTaken) {
  for (const int threads : {0, 2}) {
    const Walked walked = WalkOf(Synthetic(threads));
    const auto source = OpenBatchSource(Synthetic(threads)).value();
    const BatchInfo batch = source->Training(2);
    source->Prepare(batch, {0, 1, 2});
    ASSERT_TRUE(source->NextMicroBatch().ok());

    source->Prepare(batch, {0, 1, 2});

    EXPECT_EQ(NextBytes(*source), walked.bytes[2][0]);
    source->Prepare(source->Training(0), {2});
    EXPECT_EQ(NextBytes(*source), walked.bytes[0][2]);
    EXPECT_TRUE(absl::IsFailedPrecondition(source->NextMicroBatch().status()));
  }
}

TEST(BatchLoader, AskedAgainForTheSameLoadsNothingTwice) {
  Scripted scripted(1, 1, /*batch=*/4);
  BatchSource& loader = scripted.loader;
  const BatchInfo batch = loader.Training(0);
  loader.Prepare(batch, {0, 2});
  EXPECT_EQ(scripted.set.AwaitLoads(2), 2);

  loader.Prepare(batch, {0, 2});
  ASSERT_TRUE(loader.NextMicroBatch().ok());
  ASSERT_TRUE(loader.NextMicroBatch().ok());

  loader.Prepare(batch, {3});
  ASSERT_TRUE(loader.NextMicroBatch().ok());
  EXPECT_EQ(scripted.set.AwaitLoads(3), 3);
}

TEST(BatchLoader, StopsWhileMuchIsPreparedAndNothingTaken) {
  Scripted scripted(2, 1, /*batch=*/4);
  BatchSource& loader = scripted.loader;
  scripted.set.SetOpen(false);
  loader.Prepare(loader.Training(1), {0, 1, 2, 3});

  loader.Prepare(loader.Training(0), {1});
  scripted.set.SetOpen(true);

  EXPECT_TRUE(loader.NextMicroBatch().ok());
  loader.Prepare(loader.Training(1), {0, 1, 2, 3});
}

}  // namespace
}  // namespace paceline
