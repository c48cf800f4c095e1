#include "core/job/aggregation.h"

#include "core/job/job_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec SpecOfMembers() {
  JobSpec spec;
  spec.name = "first";
  spec.model.name = "lenet";
  spec.data.name = "fashion-mnist";
  spec.train.micro_batch = 4;
  spec.aggregation.mode = "rolling";
  return spec;
}

TEST(Aggregation, AModeMakesAJobDataParallel) {
  for (const char* mode : {"none", "rolling", "central", "gossip"}) {
    JobSpec spec = SpecOfMembers();
    spec.aggregation.mode = mode;

    EXPECT_EQ(IsDataParallel(spec), std::string(mode) != "none");
  }
}

TEST(Aggregation, ZenosStepIsTheLearningRateUnlessTheJobSaysAnother) {
  JobSpec spec = SpecOfMembers();
  spec.train.learning_rate.base = 0.25;
  EXPECT_EQ(RuleOf(spec).gamma, 0.25);

  spec.aggregation.gamma = 0.5;

  EXPECT_EQ(RuleOf(spec).gamma, 0.5);
}

TEST(Aggregation, ThereAreNoMoreShardsThanBlocksOfParameters) {
  JobSpec spec = SpecOfMembers();
  spec.aggregation.shards = 0;
  ModelDescription model;
  model.layers.resize(1);
  model.layers[0].parameters = {{"weight", {2, 300}},
                                {"buffer", {5000}, /*trainable=*/false}};

  EXPECT_EQ(ShardsOf(spec, model, 5), 3) << "600 of 256 a block";
  model.layers[0].parameters.clear();
  EXPECT_EQ(ShardsOf(spec, model, 5), 1);
}

TEST(Aggregation, AFaultOfAWorkerThatIsNotThereIsNamed) {
  JobSpec spec = SpecOfMembers();
  spec.faults = {{.worker = "w1", .kind = "nan"},
                 {.worker = "pi-twp", .kind = "kill"}};
  ASSERT_THAT(CheckJobSpec(spec), IsEmpty()) << "nobody knows the workers yet";

  const auto problems = CheckFaultWorkers(spec, {"w1", "pi-two"});

  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].path, "faults[1].worker");
  EXPECT_THAT(problems[0].why, HasSubstr("did you mean 'pi-two'?"));
  EXPECT_EQ(CheckFaultWorkers(spec, {}).size(), 2u);
  EXPECT_THAT(CheckFaultWorkers(spec, {"w1", "pi-twp"}), IsEmpty());
}

}  // namespace
}  // namespace paceline
