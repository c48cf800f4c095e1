#include <set>

#include "core/job/aggregation.h"
#include "core/job/job_check.h"
#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobSpec SmallJob(const std::string& name, const std::string& changes = "") {
  JobSpec job;
  job.model = DefaultModel(name);
  job.model.depth = 2;
  const CatalogEntry& entry = *FindModel(name);
  const bool tokens = entry.input.size() == 1;
  job.data.shape = tokens ? Shape{6} : entry.input;
  job.data.classes = tokens ? 12 : entry.classes;
  ChangeJob(job, changes);
  return job;
}

std::string WhyNot(const std::string& name, int64_t block) {
  return WhyNotSkipped(DescribeModel(SmallJob(name)).value(), block);
}

TEST(WhyNotSkipped, RefusesWhatFollowingLayersCouldNotDoWithout) {
  EXPECT_EQ(WhyNot("vit", 1), "");
  EXPECT_EQ(WhyNot("resnet18", 1), "");
  EXPECT_THAT(WhyNot("resnet18", 2), HasSubstr("another shape"));
  EXPECT_THAT(WhyNot("vit", 2), HasSubstr("only blocks 0 to 1"));
  EXPECT_THAT(WhyNot("vgg11", 0), HasSubstr("no residual blocks"));
}

TEST(SkipStage, IsForEveryModeAndOfNoWorker) {
  const std::string skip =
      "faults[0].kind=skip-stage; faults[0].block=1; faults[0].worker=";
  for (const char* mode : {"none", "rolling", "gossip"}) {
    JobSpec job = SmallJob("vit", skip);
    job.name = "skips";
    job.data.name = "synthetic";
    job.aggregation.mode = mode;
    EXPECT_TRUE(CheckJobSpec(job).empty()) << CheckJobSpec(job).front().why;
  }
}

TEST(SkipStage, HasNoUseForAWorkerOrSteps) {
  JobSpec job = SmallJob("vit", "faults[0].kind=skip-stage; faults[0].block=1");
  job.aggregation.mode = "rolling";
  std::vector<std::string> unused;
  for (const UnusedKey& key : UnusedKeys(job, {{"faults[0].kind"},
                                               {"faults[0].block"},
                                               {"faults[0].worker"},
                                               {"faults[0].step"},
                                               {"faults[0].steps"}})) {
    unused.push_back(key.path);
  }

  EXPECT_THAT(unused, ElementsAre("faults[0].worker", "faults[0].step",
                                  "faults[0].steps"));
  EXPECT_TRUE(CheckFaultWorkers(job, {"w1"}).empty());
}

TEST(SkipStage, SaysWhatIsWrongWithIt) {
  const std::string skip = "faults[0].kind=skip-stage";
  JobSpec job = SmallJob("vit", skip);
  job.data.name = "synthetic";
  EXPECT_THAT(WhyAt(job, "faults[0].block"), HasSubstr("is missing"));

  ChangeJob(job, "faults[0].block=7");
  EXPECT_THAT(WhyAt(job, "faults[0].block"), HasSubstr("blocks 0 to 1"));
  EXPECT_THAT(DescribeModel(job).status().message(), HasSubstr("block is 7"));
}

TEST(IsDropped, IsDrawnFromSeedStepMicroBatchAndBlock) {
  TrainSpec train;
  train.layer_drop = 0.25;
  int dropped = 0;
  std::set<std::vector<bool>> rows;  // one a block, of each step
  for (int block = 0; block < 4; ++block) {
    std::vector<bool> row;
    for (int64_t step = 0; step < 500; ++step) {
      row.push_back(IsDropped(train, step, 1, block));
      EXPECT_EQ(row.back(), IsDropped(train, step, 1, block));
      dropped += row.back() ? 1 : 0;
    }
    rows.insert(row);
  }

  EXPECT_NEAR(dropped, 500, 60);  // three deviations
  EXPECT_EQ(rows.size(), 4u);
  train.layer_drop = 0;
  EXPECT_FALSE(IsDropped(train, 0, 0, 0));
}

TEST(LayerDrop, SaysWhichModelsItIsNotFor) {
  const auto why = [](const char* name, const char* share) {
    JobSpec job = SmallJob(name);
    job.data.name = FindModel(name)->synthetic;
    ChangeJob(job, absl::StrCat("train.layer_drop=", share));
    return WhyAt(job, "train.layer_drop");
  };

  EXPECT_EQ(why("vit", "0.5"), "nothing");
  EXPECT_THAT(why("vit", "1"), HasSubstr("[0, 1)"));
  EXPECT_THAT(why("resnet18", "0.5"), HasSubstr("running statistics"));
  EXPECT_THAT(why("mlp", "0.5"), HasSubstr("has none that keeps its shape"));
}

TEST(Tolerate, IsAWordThatNamedWorkersGiveAnEffect) {
  JobSpec job = SmallJob("vit", "kind=infer; data.name=synthetic");
  const auto unused = [&job] {
    return UnusedKeys(job, {{"infer.tolerate"}}).size();
  };
  ChangeJob(job, "infer.tolerate=skip");

  EXPECT_EQ(WhyAt(job, "infer.tolerate"), "nothing");
  EXPECT_EQ(unused(), 1u);
  ChangeJob(job, "pipeline.workers=a,b");
  EXPECT_EQ(unused(), 0u);
  ChangeJob(job, "infer.tolerate=skipp");
  EXPECT_THAT(WhyAt(job, "infer.tolerate"), HasSubstr("did you mean 'skip'"));
}

}  // namespace
}  // namespace paceline
