#include "core/plan/member_memory.h"

#include <limits>

#include "core/plan/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// Two layers of 100 and 50 trainable numbers, and a buffer of 7.
ModelDescription SmallModel() {
  ModelDescription model;
  model.input = {10};
  for (const int64_t elements : {100, 50}) {
    Layer layer;
    layer.parameters = {{"weight", {elements}}};
    layer.parameter_bytes = 4 * elements;
    layer.output = {10};
    layer.output_bytes = 40;
    layer.activation_bytes = 80;
    model.layers.push_back(layer);
  }
  model.layers[1].parameters.push_back({"buffer", {7}, /*trainable=*/false});
  model.layers[1].parameter_bytes += 28;
  return model;
}

JobSpec Spec() {
  JobSpec spec;
  spec.aggregation.mode = "rolling";
  spec.train.micro_batch = 2;
  spec.train.optimizer.name = "adamw";
  return spec;
}

int64_t Training(const JobSpec& spec) {
  return EstimateBytes(SmallModel(), spec.train, {{0, 2}}, {{1}});
}

TEST(MemberBytes, AreTheWholeModelAndThePartsOfARound) {
  // Gradient in place, a result of 600 bytes and two before it, and the parts
  // of four others.
  EXPECT_EQ(MemberBytes(Spec(), SmallModel(), 5),
            Training(Spec()) + 3 * 600 + 4 * 600);
}

TEST(MemberBytes, OfOneMemberHaveNoPartsOfOthers) {
  EXPECT_EQ(MemberBytes(Spec(), SmallModel(), 1), Training(Spec()) + 3 * 600);
}

TEST(MemberBytes, ShardsDivideWhatAServerHolds) {
  JobSpec spec = Spec();
  spec.aggregation.shards = 5;
  EXPECT_EQ(MemberBytes(spec, SmallModel(), 5),
            Training(spec) + 3 * 600 + 4 * 120);

  // Two of five shards at once on some of three members.
  EXPECT_EQ(MemberBytes(spec, SmallModel(), 3),
            Training(spec) + 3 * 600 + 2 * 2 * 120);
}

TEST(MemberBytes, ANarrowCodecNeedsAPartOfItsOwnButHalvesAllOthers) {
  JobSpec spec = Spec();
  spec.aggregation.codec = "bf16";

  EXPECT_EQ(MemberBytes(spec, SmallModel(), 5),
            Training(spec) + 300 + 3 * 300 + 4 * 300);
}

TEST(MemberBytes, GossipKeepsNoResults) {
  JobSpec spec = Spec();
  spec.aggregation.mode = "gossip";

  EXPECT_EQ(MemberBytes(spec, SmallModel(), 1), Training(spec) + 600);
}

TEST(MemberBytes, ZenoTriesAStepOnWeightsOfItsOwn) {
  JobSpec spec = Spec();
  spec.aggregation.rule = "zeno";

  EXPECT_EQ(MemberBytes(spec, SmallModel(), 5),
            MemberBytes(Spec(), SmallModel(), 5) + 600);
}

TEST(MemberBytes, ASharedParameterIsThereOnce) {
  ModelDescription model = SmallModel();
  model.layers[1].borrowed = {{"weight", {100}}};
  model.layers[1].borrowed_bytes = 400;

  EXPECT_EQ(MemberBytes(Spec(), model, 5),
            MemberBytes(Spec(), SmallModel(), 5));
}

TEST(MemberBytes, AreWhatAPlanOfOneMemberCountsAndRefuses) {
  JobSpec spec = Spec();
  spec.aggregation.members = 5;
  spec.pipeline.stages = 1;
  spec.pipeline.policy = "equal";
  spec.pipeline.schedule = "gpipe";
  const int64_t bytes = MemberBytes(spec, SmallModel(), 5);

  const auto plan =
      MakePlan(spec, SmallModel(), {{WorkerId(1), "a", bytes, ""}});
  const auto small =
      MakePlan(spec, SmallModel(), {{WorkerId(1), "a", bytes - 1, ""}});

  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(BytesOn(*plan, WorkerId(1)), bytes);
  ASSERT_TRUE(absl::IsResourceExhausted(small.status())) << small.status();
  EXPECT_THAT(std::string(small.status().message()),
              testing::HasSubstr("as one of 5 members with the whole model"));
}

TEST(JoinerBytes, AreThoseOfAMemberWhereThoseAreMore) {
  EXPECT_EQ(JoinerBytes(Spec(), SmallModel(), 100),
            MemberBytes(Spec(), SmallModel(), 100));
}

TEST(JoinerBytes, HaveTheStateTwiceWhileItIsTakenOver) {
  JobSpec spec = Spec();
  spec.train.micro_batch = 1;
  ModelDescription model = SmallModel();
  for (Layer& layer : model.layers) {
    layer.output_bytes = layer.activation_bytes = 0;
  }
  // Parameters of 600 bytes and a buffer of 28; two moments of 600.
  EXPECT_EQ(GroupStateBytes(spec, model), 628 + 1200);

  EXPECT_EQ(JoinerBytes(spec, model, 1), 4 * 628 + 628 + 1200);
  EXPECT_LT(MemberBytes(spec, model, 1), JoinerBytes(spec, model, 1));
}

TEST(JoinerBytes, DoNotWrapAround) {
  ModelDescription model = SmallModel();
  model.layers[0].parameters[0].shape = {int64_t{1} << 61};
  model.layers[0].parameter_bytes = std::numeric_limits<int64_t>::max();

  EXPECT_EQ(JoinerBytes(Spec(), model, 2), std::numeric_limits<int64_t>::max());
}

TEST(MemberBytes, DoNotWrapAround) {
  ModelDescription model = SmallModel();
  model.layers[0].parameters[0].shape = {int64_t{1} << 61};
  model.layers[0].parameter_bytes = std::numeric_limits<int64_t>::max();

  EXPECT_EQ(MemberBytes(Spec(), model, 1000),
            std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace paceline
