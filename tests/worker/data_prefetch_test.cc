// The walk over a data set: same tensors whatever loads them, and an end that
// nobody waits for.
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/thread.h"
#include "gtest/gtest.h"
#include "tests/worker/synthetic_job.h"
#include "worker/data/open.h"
#include "worker/data/prefetcher.h"
#include "worker/data/synthetic_set.h"
#include "worker/data/walk_source.h"

namespace paceline {
namespace {

// Every byte of a walk.
std::string Bytes(const JobSpec& spec) {
  const auto source = OpenBatchSource(spec);
  EXPECT_TRUE(source.ok()) << source.status();
  std::string bytes;
  for (;;) {
    const auto batch = (*source)->NextBatch();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch->has_value()) return bytes;
    for (int i = 0; i < (*batch)->micro_batches; ++i) {
      const auto tensors = (*source)->NextMicroBatch();
      EXPECT_TRUE(tensors.ok()) << tensors.status();
      for (const Tensor& tensor : *tensors) {
        bytes.append(reinterpret_cast<const char*>(tensor.data.get()),
                     tensor.bytes());
      }
    }
  }
}

// Batches in which no sample of another's turn is.
TEST(WalkSource, OfAReplicaHasItsOwnBatchesOnly) {
  JobSpec spec = SyntheticJob(2);
  spec.kind = kInferKind;
  spec.infer.micro_batch = 5;
  spec.train = ForInference(spec.infer, 1);
  const auto walk = [&spec](const Turns& turns) {
    const auto source = OpenBatchSource(spec, turns);
    EXPECT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->test_samples(), 17);
    std::map<int64_t, std::string> batches;
    while (const auto batch = (*source)->NextBatch().value()) {
      const TensorList tensors = (*source)->NextMicroBatch().value();
      batches[batch->ordinal].assign(
          reinterpret_cast<const char*>(tensors[0].data.get()),
          tensors[0].bytes());
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

// A data set of which a test decides what loading does.
class ScriptedSet final : public SampleSet {
 public:
  // values: of a sample; only the first is ever written.
  explicit ScriptedSet(int64_t values = 1)
      : format_{DType::kF32, {values}, {}} {}

  int64_t samples(BatchPhase split) const override {
    return split == BatchPhase::kTrain ? 100 : 0;
  }
  const SampleFormat& format() const override { return format_; }
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

  void AwaitLoads(int count) const {
    const auto reached = [this, count]() { return loads_ >= count; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&reached));
  }
  int loads() const {
    absl::MutexLock lock(&mutex_);
    return loads_;
  }
  void Open() {
    absl::MutexLock lock(&mutex_);
    open_ = true;
  }
  void Close() {
    absl::MutexLock lock(&mutex_);
    open_ = false;
  }
  void FailAt(int load) { fail_at_ = load; }

 private:
  const SampleFormat format_;
  int fail_at_ = -1;
  mutable absl::Mutex mutex_;
  mutable int loads_ = 0;
  bool open_ = true;
};

TrainSpec HundredMicroBatches() {
  TrainSpec train;
  train.batch = 1;
  train.micro_batch = 1;
  return train;
}

TEST(WalkSource, GivesTheSameBytesWhateverTheNumberOfLoaders) {
  const std::string alone = Bytes(SyntheticJob(0));

  // 3 epochs of 50 + 17 samples of 9 float32 and a label.
  EXPECT_EQ(alone.size(), 3u * 67 * (9 * 4 + 8));
  for (const int threads : {1, 2, 3, 8}) {
    EXPECT_TRUE(Bytes(SyntheticJob(threads)) == alone) << threads;
  }
}

TEST(WalkSource, VisitsEverySampleOnceAnEpoch) {
  WalkSource source(HundredMicroBatches(), std::make_unique<ScriptedSet>(), 2);
  std::set<int64_t> seen;
  while (source.NextBatch().value().has_value()) {
    seen.insert(source.NextMicroBatch().value()[1].As<int64_t>()[0]);
  }

  EXPECT_EQ(seen.size(), 100u);
}

TEST(WalkSource, RefusesAMicroBatchBeyondTheBatch) {
  for (const int threads : {0, 1}) {
    const auto source = OpenBatchSource(SyntheticJob(threads));
    ASSERT_TRUE(source.ok());
    EXPECT_EQ((*source)->NextMicroBatch().status().code(),
              absl::StatusCode::kFailedPrecondition)
        << "before the first batch";
    const int micro_batches = (*source)->NextBatch().value()->micro_batches;
    for (int i = 0; i < micro_batches; ++i) {
      EXPECT_TRUE((*source)->NextMicroBatch().ok());
    }

    EXPECT_EQ((*source)->NextMicroBatch().status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

TEST(WalkSource, DropsMicroBatchesThatNobodyAskedFor) {
  const auto all = OpenBatchSource(SyntheticJob(0));
  const auto some = OpenBatchSource(SyntheticJob(2));
  ASSERT_TRUE(all.ok() && some.ok());
  const int micro_batches = (*all)->NextBatch().value()->micro_batches;
  for (int i = 0; i < micro_batches; ++i) (void)(*all)->NextMicroBatch();
  (void)(*some)->NextBatch();
  (void)(*some)->NextMicroBatch();

  EXPECT_EQ((*all)->NextBatch().value(), (*some)->NextBatch().value());
  const TensorList a = (*all)->NextMicroBatch().value();
  const TensorList b = (*some)->NextMicroBatch().value();
  EXPECT_EQ(std::memcmp(a[0].data.get(), b[0].data.get(), a[0].bytes()), 0);
}

TEST(WalkSource, SaysTheStepsOfTheJob) {
  EXPECT_EQ(OpenBatchSource(SyntheticJob(1)).value()->total_steps(), 12);
}

TEST(Prefetcher, LoadsAheadButNotWithoutBound) {
  auto owned = std::make_unique<ScriptedSet>();
  ScriptedSet& set = *owned;
  constexpr int kThreads = 2;
  constexpr int kBound = kThreads * kAheadPerThread;
  Prefetcher prefetcher(HundredMicroBatches(), std::move(owned), kThreads);

  set.AwaitLoads(kBound);
  EXPECT_EQ(set.loads(), kBound) << "nothing was taken yet";

  EXPECT_TRUE(prefetcher.Next().ok());
  set.AwaitLoads(kBound + 1);
  EXPECT_EQ(set.loads(), kBound + 1);
}

// Of float32 values and a label, a sample a micro-batch.
constexpr int64_t kValuesOf64MiB = (int64_t{64} << 20) / 4 - 2;

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

TEST(Prefetcher, LoadsFewerAheadWhereTheyAreLarge) {
  auto owned = std::make_unique<ScriptedSet>(kValuesOf64MiB);
  ScriptedSet& set = *owned;
  constexpr int kThreads = 2;
  constexpr int kBound = 4;
  Prefetcher prefetcher(HundredMicroBatches(), std::move(owned), kThreads);

  set.AwaitLoads(kBound);
  for (int taken = 1; taken <= 100 - kBound; ++taken) {
    ASSERT_TRUE(prefetcher.Next().ok());
    set.AwaitLoads(taken + kBound);
    ASSERT_EQ(set.loads(), taken + kBound);
  }
}

TEST(Prefetcher, EndsWhenNobodyTakesWhatItLoaded) {
  auto owned = std::make_unique<ScriptedSet>();
  const ScriptedSet& set = *owned;
  const Prefetcher prefetcher(HundredMicroBatches(), std::move(owned), 3);

  set.AwaitLoads(1);  // and drop it, with its loaders full or loading
}

TEST(Prefetcher, EndsBeforeAnythingWasAskedFor) {
  const Prefetcher prefetcher(HundredMicroBatches(),
                              std::make_unique<ScriptedSet>(), 8);
}

TEST(Prefetcher, WaitsForALoaderThatIsSlow) {
  auto owned = std::make_unique<ScriptedSet>();
  ScriptedSet& set = *owned;
  set.Close();
  Prefetcher prefetcher(HundredMicroBatches(), std::move(owned), 1);
  absl::Notification asked;
  absl::StatusOr<TensorList> got = absl::UnknownError("nothing yet");
  Thread consumer("consumer", [&] {
    asked.Notify();
    got = prefetcher.Next();
  });
  asked.WaitForNotification();

  set.Open();
  consumer.Join();

  EXPECT_TRUE(got.ok()) << got.status();
}

TEST(Prefetcher, HandsALoadersErrorOutInItsTurn) {
  for (const int threads : {0, 1}) {
    auto owned = std::make_unique<ScriptedSet>();
    owned->FailAt(3);
    Prefetcher prefetcher(HundredMicroBatches(), std::move(owned), threads);

    EXPECT_TRUE(prefetcher.Next().ok());
    EXPECT_TRUE(prefetcher.Next().ok());
    EXPECT_EQ(prefetcher.Next().status().message(), "bad sector");
  }
}

TEST(Prefetcher, SaysWhenTheWalkIsOver) {
  for (const int threads : {0, 1, 3}) {
    Prefetcher prefetcher(HundredMicroBatches(),
                          std::make_unique<ScriptedSet>(), threads);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(prefetcher.Next().ok());

    EXPECT_EQ(prefetcher.Next().status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_FALSE(prefetcher.Next().ok()) << "and goes on saying so";
  }
}

// One sample of the synthetic set.
struct Sample {
  std::vector<float> values;
  int64_t label = -1;
};

Sample Draw(const SyntheticSet& set, BatchPhase split, int32_t index) {
  const SampleFormat& format = set.format();
  Tensor input = Tensor::Allocate(DType::kF32, format.shape);
  Tensor label = Tensor::Allocate(DType::kI64, {1});
  EXPECT_TRUE(set.Load({split, 0, {index}}, input, label).ok());
  const auto values = input.As<float>();
  return {{values.begin(), values.end()}, label.As<int64_t>()[0]};
}

TEST(SyntheticSet, DrawsASampleFromItsNumberAlone) {
  const SyntheticSet set(SyntheticJob(0).data, 7);
  const SyntheticSet other_seed(SyntheticJob(0).data, 8);
  const Sample sample = Draw(set, BatchPhase::kTrain, 3);

  EXPECT_EQ(Draw(set, BatchPhase::kTrain, 3).values, sample.values);
  EXPECT_NE(Draw(set, BatchPhase::kTrain, 4).values, sample.values);
  EXPECT_NE(Draw(set, BatchPhase::kEvaluate, 3).values, sample.values);
  EXPECT_NE(Draw(other_seed, BatchPhase::kTrain, 3).values, sample.values);
}

TEST(SyntheticSet, CanBeLearned) {
  JobSpec spec = SyntheticJob(0);
  spec.data.shape = {1, 10, 10};
  const SyntheticSet set(spec.data, 7);
  constexpr int kValues = 100;
  // The mean of every class over the training split ...
  std::map<int64_t, std::vector<double>> means;
  for (int32_t i = 0; i < 50; ++i) {
    const Sample sample = Draw(set, BatchPhase::kTrain, i);
    ASSERT_GE(sample.label, 0);
    ASSERT_LT(sample.label, 4);
    std::vector<double>& mean = means[sample.label];
    mean.resize(kValues + 1);
    for (int j = 0; j < kValues; ++j) mean[j] += sample.values[j];
    ++mean[kValues];
  }
  ASSERT_EQ(means.size(), 4u) << "every class occurs";

  // ... is the nearest one to every sample of the test split.
  for (int32_t i = 0; i < 17; ++i) {
    const Sample sample = Draw(set, BatchPhase::kEvaluate, i);
    int64_t nearest = -1;
    double least = 1e300;
    for (const auto& [of, mean] : means) {
      double distance = 0;
      for (int j = 0; j < kValues; ++j) {
        const double d = sample.values[j] - mean[j] / mean[kValues];
        distance += d * d;
      }
      if (distance < least) {
        least = distance;
        nearest = of;
      }
    }
    EXPECT_EQ(nearest, sample.label) << i;
  }
}

}  // namespace
}  // namespace paceline
