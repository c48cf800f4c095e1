#include "core/data/batch.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/well_said.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TrainSpec Train(int64_t epochs, int64_t batch, int64_t micro_batch) {
  TrainSpec train;
  train.epochs = epochs;
  train.batch = batch;
  train.micro_batch = micro_batch;
  return train;
}

std::vector<WalkBatch> Walk(const TrainSpec& train, int64_t train_samples,
                            int64_t test_samples) {
  BatchWalk walk(train, train_samples, test_samples);
  std::vector<WalkBatch> batches;
  while (const std::optional<WalkBatch> batch = walk.Next()) {
    batches.push_back(*batch);
  }
  EXPECT_FALSE(walk.Next().has_value()) << "the end is the end";
  return batches;
}

// "T0 e0 0+4/2": training, step 0, epoch 0, samples [0, 4) in 2 micro-batches;
// a final batch ends with '.'.
std::vector<std::string> Text(const std::vector<WalkBatch>& batches) {
  std::vector<std::string> lines;
  for (const WalkBatch& batch : batches) {
    const bool trains = batch.info.phase == BatchPhase::kTrain;
    lines.push_back(absl::StrCat(
        trains ? "T" : "E", batch.info.step, " e", batch.epoch, " ",
        batch.first, "+", batch.info.samples, "/", batch.info.micro_batches,
        batch.info.final_batch ? "." : ""));
  }
  return lines;
}

TrainSpec Steps(int64_t steps, TrainSpec train) {
  train.steps = steps;
  return train;
}

TrainSpec EvaluatedEvery(int64_t epochs, TrainSpec train) {
  train.evaluate_every = epochs;
  return train;
}

TEST(BatchWalk, GoesThroughEpochsAndEvaluations) {
  const auto walk = [](const TrainSpec& train, int64_t train_samples,
                       int64_t test_samples) {
    return absl::StrJoin(Text(Walk(train, train_samples, test_samples)), ", ");
  };
  EXPECT_EQ(walk(Train(2, 4, 2), 9, 5),
            "T0 e0 0+4/2, T1 e0 4+4/2, T2 e0 8+1/1, E3 e0 0+4/2, E3 e0 4+1/1, "
            "T3 e1 0+4/2, T4 e1 4+4/2, T5 e1 8+1/1, E6 e1 0+4/2, E6 e1 4+1/1.")
      << "every epoch ends with its shorter batch and an evaluation";
  EXPECT_EQ(walk(Train(2, 4, 4), 8, 0),
            "T0 e0 0+4/1, T1 e0 4+4/1, T2 e1 0+4/1, T3 e1 4+4/1.")
      << "without a test set the last update is the end";
  EXPECT_EQ(walk(Steps(3, Train(100, 4, 2)), 8, 3),
            "T0 e0 0+4/2, T1 e0 4+4/2, E2 e0 0+3/2, T2 e1 0+4/2, E3 e1 0+3/2.")
      << "steps end the walk in the middle of an epoch";
  EXPECT_EQ(walk(Steps(3, Train(1, 4, 4)), 4, 0),
            "T0 e0 0+4/1, T1 e1 0+4/1, T2 e2 0+4/1.")
      << "steps ask for more epochs";
  EXPECT_EQ(walk(EvaluatedEvery(2, Train(5, 4, 4)), 4, 1),
            "T0 e0 0+4/1, T1 e1 0+4/1, E2 e1 0+1/1, T2 e2 0+4/1, T3 e3 0+4/1, "
            "E4 e3 0+1/1, T4 e4 0+4/1, E5 e4 0+1/1.")
      << "an evaluation every two epochs, and one at the end";
  EXPECT_EQ(walk(EvaluatedEvery(0, Train(2, 4, 4)), 4, 1),
            "T0 e0 0+4/1, T1 e1 0+4/1, E2 e1 0+1/1.")
      << "an evaluation at the end only";
  EXPECT_EQ(walk(Train(1, 64, 16), 3, 2), "T0 e0 0+3/1, E1 e0 0+2/1.")
      << "a data set that is smaller than a batch";
}

TEST(BatchWalk, BeginsAtAnyStepLikeTheRestOfTheWholeWalk) {
  const TrainSpec train = Train(3, 4, 2);
  const std::vector<std::string> whole = Text(Walk(train, 9, 5));
  for (int64_t step = 0; step <= 9; ++step) {
    BatchWalk walk(train, 9, 5, step);
    std::vector<WalkBatch> rest;
    while (const std::optional<WalkBatch> batch = walk.Next()) {
      EXPECT_EQ(batch->info.ordinal, std::ssize(rest));
      rest.push_back(*batch);
    }
    const auto evaluates = [&](const std::string& line) {
      return absl::StartsWith(line, absl::StrCat("E", step, " "));
    };
    const auto trains = [&](const std::string& line) {
      return absl::StartsWith(line, absl::StrCat("T", step, " "));
    };
    auto first = std::find_if(whole.begin(), whole.end(), evaluates);
    if (first == whole.end()) {
      first = std::find_if(whole.begin(), whole.end(), trains);
    }
    EXPECT_EQ(Text(rest), std::vector<std::string>(first, whole.end()));
  }
}

TEST(BatchWalk, LeavesOutAnEvaluationThatWasMade) {
  const TrainSpec train = Train(3, 4, 2);
  for (int64_t step = 0; step <= 9; ++step) {
    std::vector<WalkBatch> all, rest;
    BatchWalk walk(train, 9, 5, step);
    while (const auto batch = walk.Next()) {
      const bool is_made = batch->info.phase == BatchPhase::kEvaluate &&
                           batch->info.step == step;
      if (!is_made) all.push_back(*batch);
    }
    BatchWalk later(train, 9, 5, step, /*evaluated=*/true);
    while (const auto batch = later.Next()) rest.push_back(*batch);

    EXPECT_EQ(Text(rest), Text(all)) << step;
  }
}

TEST(BatchWalk, OfATestSetBeginsAtAnyMicroBatch) {
  const TrainSpec infer = ForInference({.micro_batch = 2}, 1);
  for (int64_t first = 0; first <= 5; ++first) {
    BatchWalk walk(infer, 100, 9, first);
    for (int64_t at = first; at < 5; ++at) {
      const auto batch = walk.Next();
      ASSERT_TRUE(batch.has_value());
      EXPECT_EQ(batch->info.phase, BatchPhase::kEvaluate);
      EXPECT_EQ(batch->info.ordinal, at);
      EXPECT_EQ(batch->info.micro_batches, 1);
      EXPECT_EQ(batch->first, 2 * at);
      EXPECT_EQ(batch->info.samples, at == 4 ? 1 : 2);
      EXPECT_EQ(batch->info.final_batch, at == 4);
      EXPECT_EQ(batch->info.total_micro_batches, 5);
    }
    EXPECT_FALSE(walk.Next().has_value());
  }
  EXPECT_TRUE(Walk(infer, 100, 0).empty());
}

TEST(BatchWalk, KnowsItsStepsBeforehand) {
  EXPECT_EQ(BatchWalk(Train(3, 4, 2), 9, 0).total_steps(), 9);
  EXPECT_EQ(BatchWalk(Steps(5, Train(3, 4, 2)), 9, 0).total_steps(), 5);
  const BatchWalk endless(Train(INT64_MAX, 4, 2), 9, 0);
  EXPECT_EQ(endless.total_steps(), INT64_MAX);
  EXPECT_EQ(endless.total_micro_batches(), INT64_MAX);
}

TEST(MicroBatchSamples, AddUpToEveryBatchAndTheLastHasTheRest) {
  for (const WalkBatch& batch : Walk(Train(2, 7, 3), 23, 11)) {
    int64_t sum = 0;
    for (int i = 0; i < batch.info.micro_batches; ++i) {
      const int64_t samples = MicroBatchSamples(batch.info, 3, i);
      const bool last = i + 1 == batch.info.micro_batches;
      EXPECT_TRUE(samples == 3 || (last && samples > 0));
      sum += samples;
    }
    EXPECT_EQ(sum, batch.info.samples);
  }
}

TEST(SampleOrder, IsAPermutation) {
  std::vector<int32_t> order = SampleOrder(1, 0, 1000);
  std::vector<int32_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_NE(order, all);

  std::sort(order.begin(), order.end());

  EXPECT_EQ(order, all);
}

TEST(SampleOrder, DependsOnSeedAndEpochAlone) {
  EXPECT_EQ(SampleOrder(1, 2, 100), SampleOrder(1, 2, 100));
  EXPECT_NE(SampleOrder(1, 2, 100), SampleOrder(1, 3, 100));
  EXPECT_NE(SampleOrder(1, 2, 100), SampleOrder(2, 2, 100));
  EXPECT_NE(SampleOrder(1, 2, 100), SampleOrder(2, 1, 100));
}

TEST(SampleOrder, OfAnEpochTakesTheMemoryOfAnother) {
  std::vector<int32_t> order = SampleOrder(1, 0, 1000);

  for (const int64_t epoch : {3, 0, 7}) {
    FillSampleOrder(1, epoch, absl::MakeSpan(order));
    EXPECT_EQ(order, SampleOrder(1, epoch, 1000)) << epoch;
  }
  FillSampleOrder(1, 0, {});
}

TEST(SampleOrder, IsTheSameOnEveryMachine) {
  EXPECT_THAT(SampleOrder(1, 0, 0), ElementsAre());
  EXPECT_THAT(SampleOrder(1, 0, 1), ElementsAre(0));
  EXPECT_THAT(SampleOrder(1, 0, 8), ElementsAre(6, 5, 0, 2, 3, 7, 1, 4));
}

// Where there is no flush between batches: how long the stream goes on, and how
// many updates there are in all.
TEST(BatchWalk, SaysWhatATrainingBatchDrainsInto) {
  const auto drains = [](const TrainSpec& train, int64_t test_samples) {
    std::string text;
    for (const WalkBatch& batch : Walk(train, 9, test_samples)) {
      if (batch.info.phase == BatchPhase::kTrain) {
        text += batch.info.drains ? "!" : "-";
      } else {
        EXPECT_FALSE(batch.info.drains);
        text += "e";
      }
    }
    return text;
  };
  EXPECT_EQ(drains(Train(2, 4, 2), 5), "--!ee--!ee");
  EXPECT_EQ(drains(Train(2, 4, 2), 0), "-----!");
  EXPECT_EQ(drains(EvaluatedEvery(2, Train(3, 4, 2)), 4), "-----!e--!e");
}

TEST(BatchWalk, CountsTheUpdatesOfAllMicroBatches) {
  for (const int64_t steps : {0, 1, 2, 3, 4, 8, 9}) {
    const TrainSpec train = Steps(steps, Train(2, 4, 3));
    int64_t updates = 0;
    const std::vector<WalkBatch> batches = Walk(train, 9, 5);
    for (const WalkBatch& batch : batches) {
      if (batch.info.phase == BatchPhase::kTrain) {
        EXPECT_EQ(batch.info.first_update, updates);
        updates += batch.info.micro_batches;
      }
    }

    EXPECT_EQ(BatchWalk(train, 9, 5).total_micro_batches(), updates) << steps;
    EXPECT_EQ(batches.front().info.total_micro_batches, updates);
  }
}

TrainSpec Train(int64_t steps, int64_t batch) {
  TrainSpec train;
  train.steps = steps;
  train.epochs = 3;
  train.batch = batch;
  return train;
}

TEST(WalkNotes, SayWhatItsWriterMayNotHaveMeant) {
  TrainSpec warm = Train(10, 8), drops = Train(10, 8), kept = Train(10, 8);
  warm.learning_rate.warmup_steps = 40;
  warm.learning_rate.base = 0.1;
  drops.learning_rate.schedule = "step";
  drops.learning_rate.step_every = 10;
  kept.checkpoint_every = 11;
  const struct {
    TrainSpec train;
    int64_t samples;
    int64_t steps;
    std::string says;
  } kCases[] = {
      {Train(0, 64), 32, 0,
       "train.batch is 64, and the data has 32 samples to train on: every "
       "batch is all of it, and an epoch is one step"},
      {Train(0, 64), 0, 3, "no more samples to train on"},
      {warm, 0, 10,
       "warmup_steps is 40, and the job has 10 steps: the learning rate only "
       "rises, up to 0.025"},
      {drops, 0, 10, "the learning rate never drops"},
      {kept, 0, 10, "no checkpoint is made"},
      {warm, 100, 0, "the job has 10 steps"},
  };
  for (const auto& [train, samples, steps, says] : kCases) {
    const std::vector<std::string> notes = WalkNotes(train, samples, steps);
    ASSERT_EQ(notes.size(), 1u) << says;
    EXPECT_THAT(notes[0], testing::HasSubstr(says));
    EXPECT_EQ(IllSaid(notes[0]), "");
  }

  for (TrainSpec train : {Train(0, 32), Train(7, 32)}) {
    train.learning_rate.warmup_steps = 2;
    train.checkpoint_every = 3;
    EXPECT_THAT(WalkNotes(train, 32, 0), testing::IsEmpty());
    EXPECT_THAT(WalkNotes(train, 0, 0), testing::IsEmpty());
    EXPECT_THAT(WalkNotes(train, 0, 7), testing::IsEmpty());
  }
}

TEST(StepsBeside, AreThoseOfTheSameData) {
  EXPECT_EQ(StepsBeside(Train(0, 8), 12, Train(40, 8)), 40);
  TrainSpec longer = Train(0, 8);
  longer.epochs = 5;
  EXPECT_EQ(StepsBeside(Train(0, 8), 12, longer), 20);
  EXPECT_EQ(StepsBeside(Train(9, 8), 9, longer), 0) << "who knows the data?";
  EXPECT_EQ(StepsBeside(Train(0, 8), 12, Train(0, 4)), 0);
}

constexpr int kParts = 4;
constexpr int64_t kSamples = 4000;

TrainSpec Batches() {
  TrainSpec train;
  train.batch = 32;
  train.micro_batch = 8;
  train.seed = 3;
  return train;
}

// Ten labels, as often as each other.
std::vector<int32_t> Labels() {
  std::vector<int32_t> labels(kSamples);
  for (int64_t i = 0; i < kSamples; ++i) {
    labels[i] = static_cast<int32_t>(i % 10);
  }
  return labels;
}

SampleParts PartsBy(const std::string& text, bool rotates = false) {
  return SampleParts(FindDistribution(text).value(), Batches(), kParts, rotates,
                     Labels());
}

// [part][label]
std::vector<std::vector<int>> CountsOf(const SampleParts& parts) {
  std::vector<std::vector<int>> counts(kParts, std::vector<int>(10));
  const std::vector<int32_t> labels = Labels();
  for (int64_t i = 0; i < kSamples; ++i) {
    ++counts[parts.part_of()[i]][labels[i]];
  }
  return counts;
}

TEST(SampleParts, EveryMemberHasAsManySamplesAsPlaces) {
  for (const char* const text :
       {"by-label", "dirichlet(0.1)", "clustered", "balanced"}) {
    for (const std::vector<int>& counts : CountsOf(PartsBy(text))) {
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0),
                kSamples / kParts)
          << text;
    }
  }
}

TEST(SampleParts, ByLabelAMemberHasFewLabelsAndBalancedAllOfThem) {
  for (const std::vector<int>& counts : CountsOf(PartsBy("by-label"))) {
    EXPECT_LE(std::count_if(counts.begin(), counts.end(),
                            [](int count) { return count > 0; }),
              4);
  }
  for (const std::vector<int>& counts : CountsOf(PartsBy("balanced"))) {
    for (const int count : counts) EXPECT_NEAR(count, 100, 1);
  }
}

TEST(SampleParts, ClusteredTwoMembersShareHalfOfTheLabels) {
  const auto counts = CountsOf(PartsBy("clustered"));

  for (int label = 0; label < 10; ++label) {
    const int low = label < 5 ? 0 : 2;
    EXPECT_NEAR(counts[low][label], 200, 60);
    EXPECT_NEAR(counts[low + 1][label], 200, 60);
    EXPECT_EQ(counts[2 - low][label], 0);
  }
}

// The smaller alpha, the more unlike members are.
TEST(SampleParts, DirichletsAlphaSaysHowUnlikeMembersAre) {
  const auto spread = [](const char* text) {
    double sum = 0;
    for (const std::vector<int>& counts : CountsOf(PartsBy(text))) {
      for (const int count : counts) sum += (count - 100.0) * (count - 100.0);
    }
    return sum;
  };

  EXPECT_GT(spread("dirichlet(0.1)"), 2 * spread("dirichlet(1)"));
  EXPECT_GT(spread("dirichlet(1)"), 4 * spread("dirichlet(100)"));
}

TEST(SampleParts, AnEpochHasEverySampleOnceAtAPlaceOfItsMember) {
  const SampleParts parts = PartsBy("by-label");
  std::vector<int32_t> order = SampleOrder(3, 5, kSamples);

  parts.Arrange(5, absl::MakeSpan(order));

  for (int64_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(parts.part_of()[order[i]], i % 32 / 8);
  }
  EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(),
            size_t{kSamples});
}

TEST(SampleParts, RotatingAMemberHasTheNextOnesSamples) {
  const SampleParts parts = PartsBy("by-label", /*rotates=*/true);
  std::vector<int32_t> order = SampleOrder(3, 1, kSamples);

  parts.Arrange(1, absl::MakeSpan(order));

  for (int64_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(parts.part_of()[order[i]], (i % 32 / 8 + 1) % kParts);
  }
}

TEST(Distribution, SaysWhatItCannotBe) {
  for (const char* const text :
       {"", "even", "dirichlet", "dirichlet(0)", "dirichlet(-1)",
        "dirichlet(nan)", "dirichlet(0.1", "by-label "}) {
    EXPECT_THAT(std::string(FindDistribution(text).status().message()),
                HasSubstr("dirichlet(ALPHA)"))
        << text;
  }
}

TEST(Distribution, WantsLabelsAndAGroupOfKnownSize) {
  JobSpec spec;
  spec.data.name = "fashion-mnist";
  spec.data.distribution = "by-label";
  spec.aggregation.members = 4;
  EXPECT_THAT(WhyNoDistribution(spec), HasSubstr("aggregation.mode"));

  spec.aggregation = {};
  spec.aggregation.mode = "rolling";
  EXPECT_THAT(WhyNoDistribution(spec), HasSubstr("aggregation.members"));

  spec.aggregation.members = 4;
  EXPECT_THAT(WhyNoDistribution(spec), IsEmpty());

  spec.kind = kInferKind;
  EXPECT_THAT(WhyNoDistribution(spec), HasSubstr("group"));
  spec.kind = kTrainKind;

  spec.data.name = "text";
  EXPECT_THAT(WhyNoDistribution(spec), HasSubstr("labels"));
}

}  // namespace
}  // namespace paceline
