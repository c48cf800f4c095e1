// Batch normalisation in an engine: statistics are folded when a step is
// committed, and only then.
#include <algorithm>
#include <cmath>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/torch/in_process_pipeline.h"

namespace paceline {
namespace {

using ::testing::Each;

Experiment Resnet() {
  Experiment experiment = SmallExperiment("resnet18");
  experiment.set.shape = {3, 16, 16};
  experiment.job.model.width = 4;
  return experiment;
}

class BatchNormTest : public ::testing::Test {
 protected:
  BatchNormTest() { Make(Resnet()); }

  void Make(const Experiment& experiment) {
    experiment_ = experiment;
    engine_ = MakeStage(experiment);
  }

  // Two micro-batches of three samples.
  BatchInfo Batch() const {
    BatchInfo batch;
    batch.micro_batches = 2;
    batch.samples = 6;
    return batch;
  }
  TensorList Input(int micro_batch) const {
    return experiment_.set.Take(SampleOrder(1, 0, 23), 3 * micro_batch, 3);
  }
  void Train(const std::vector<int>& backward_order) {
    for (const int m : {0, 1}) {
      ASSERT_TRUE(engine_->Forward(Batch(), m, Input(m)).ok());
    }
    for (const int m : backward_order) {
      ASSERT_TRUE(engine_->Backward(Batch(), m, {}).ok());
    }
  }
  void Apply(bool skip) {
    StepVerdict verdict;
    verdict.skip = skip;
    verdict.gradient_scale = 1;
    ASSERT_TRUE(engine_->Apply(verdict).ok());
  }
  std::map<std::string, std::vector<float>> Running(const char* what) const {
    auto found = WeightsOf(*engine_);
    std::erase_if(found, [what](const auto& named) {
      return named.first.find(what) == std::string::npos;
    });
    return found;
  }

  Experiment experiment_;
  std::unique_ptr<StageEngine> engine_;
};

TEST_F(BatchNormTest, FoldsWhenTheStepIsCommittedAndNotBefore) {
  const auto mean = Running(".running_mean");
  const auto variance = Running(".running_var");
  ASSERT_EQ(mean.size(), 20u);

  Train({0, 1});
  EXPECT_EQ(Running(".running_mean"), mean);
  EXPECT_EQ(Running(".running_var"), variance);

  Apply(/*skip=*/false);
  EXPECT_NE(Running(".running_mean"), mean);
  EXPECT_NE(Running(".running_var"), variance);
  for (const auto& [name, count] : Running(".num_batches_tracked")) {
    EXPECT_THAT(count, Each(2)) << name;
  }
}

TEST_F(BatchNormTest, ASkipFoldsNothingAndForgets) {
  const auto mean = Running(".running_mean");

  Train({0, 1});
  Apply(/*skip=*/true);
  EXPECT_EQ(Running(".running_mean"), mean);

  Train({0, 1});
  Apply(/*skip=*/false);
  for (const auto& [name, count] : Running(".num_batches_tracked")) {
    EXPECT_THAT(count, Each(2)) << name;
  }
}

TEST_F(BatchNormTest, FoldsInTheOrderOfMicroBatchesWhateverCameBackFirst) {
  Train({0, 1});
  Apply(/*skip=*/false);
  const auto mean = Running(".running_mean");
  const auto variance = Running(".running_var");

  Make(Resnet());
  Train({1, 0});
  Apply(/*skip=*/false);

  EXPECT_EQ(Running(".running_mean"), mean);
  EXPECT_EQ(Running(".running_var"), variance);
}

// Each of two members has one of the micro-batches, and both have the sum.
TEST_F(BatchNormTest, MembersThatAddUpTheirSumsFoldAsOneProcess) {
  Train({0, 1});
  Apply(/*skip=*/false);
  const auto alone = WeightsOf(*engine_);
  std::vector<std::unique_ptr<StageEngine>> members;
  std::vector<float> sum;
  for (const int m : {0, 1}) {
    members.push_back(MakeStage(experiment_, 0, 1, false, /*flat=*/true));
    ASSERT_TRUE(members[m]->Forward(Batch(), m, Input(m)).ok());
    ASSERT_TRUE(members[m]->Backward(Batch(), m, {}).ok());
    const absl::Span<float> part = members[m]->FlatGradient().value();
    ASSERT_GT(part.size(), members[m]->GradientOffsets().back());
    sum.resize(part.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }

  StepVerdict verdict;
  verdict.gradient_scale = 1;
  for (const auto& member : members) {
    ASSERT_TRUE(member->ReadSumFrom({sum}).ok());
    ASSERT_TRUE(member->Report(Batch()).ok());
    ASSERT_TRUE(member->Apply(verdict).ok());
  }

  EXPECT_EQ(members[0]->StateHash(), members[1]->StateHash());
  for (const auto& [name, values] : WeightsOf(*members[0])) {
    if (name.find(".running") == std::string::npos &&
        name.find(".num_batches") == std::string::npos) {
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], alone.at(name)[i], 1e-5) << name;
    }
  }
  const absl::Span<float> next = members[0]->FlatGradient().value();
  EXPECT_EQ(std::count(next.begin(), next.end(), 0.0f), std::ssize(next));
}

TEST_F(BatchNormTest, EvaluatesWithRunningStatistics) {
  Train({0, 1});
  Apply(/*skip=*/false);
  BatchInfo three;
  three.phase = BatchPhase::kEvaluate;
  three.samples = 3;
  const TensorList all = Input(0);
  const auto together = engine_->Forward(three, 0, all);
  ASSERT_TRUE(together.ok()) << together.status();

  double alone = 0;
  for (int64_t i = 0; i < 3; ++i) {
    BatchInfo one = three;
    one.samples = 1;
    const auto result = engine_->Forward(
        one, 0, experiment_.set.Take(SampleOrder(1, 0, 23), i, 1));
    ASSERT_TRUE(result.ok()) << result.status();
    alone += result->loss->loss;
  }

  // A sample's neighbours do not matter.
  EXPECT_NEAR(together->loss->loss, alone, 1e-4);
}

TEST_F(BatchNormTest, OneValueAChannelHasNoVarianceToFold) {
  Experiment experiment = Resnet();
  experiment.set.shape = {3, 2, 2};
  experiment.job.train.micro_batch = 1;
  Make(experiment);
  BatchInfo batch;
  batch.samples = 1;
  const auto result = engine_->Forward(
      batch, 0, experiment_.set.Take(SampleOrder(1, 0, 23), 0, 1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(std::isfinite(result->loss->loss));
  ASSERT_TRUE(engine_->Backward(batch, 0, {}).ok());
  EXPECT_TRUE(engine_->Report(batch)->finite);

  Apply(/*skip=*/false);

  for (const auto& [name, values] : Running(".running_var")) {
    EXPECT_THAT(values, Each(1)) << name;
  }
  for (const auto& [name, count] : Running(".num_batches_tracked")) {
    EXPECT_THAT(count, Each(0)) << name;
  }
}

}  // namespace
}  // namespace paceline
