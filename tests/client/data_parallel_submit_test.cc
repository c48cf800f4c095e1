#include "client/estimate.h"
#include "client/submit.h"
#include "core/plan/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

SubmitOptions Parallel() {
  SubmitOptions options;
  options.spec.name = "first";
  options.spec.model.name = "lenet";
  options.spec.data.name = "fashion-mnist";
  options.spec.train.micro_batch = 4;
  options.spec.aggregation.mode = "rolling";
  options.spec.aggregation.rule = "krum";
  options.spec.aggregation.k = 1;
  options.spec.aggregation.min_parts = 4;
  options.dry_run = true;
  return options;
}

// All eight layers on each of so many workers.
Submission OnWorkers(int count) {
  Submission placed;
  for (int i = 0; i < count; ++i) {
    placed.stages.push_back({0, 0, 8, 10 + i, "w"});
  }
  return placed;
}

int64_t Bytes(const JobSpec& spec, int members) {
  const auto model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes);
  return MemberBytes(spec, model.value(), members);
}

TEST(DataParallel, ADryRunShowsWhatEachMemberTakes) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.submissions = {OnWorkers(5)};

  EXPECT_EQ(SubmitCommand(bed.context, Parallel()), kExitOk);

  const json stages = json::parse(bed.out.str())["stages"];
  ASSERT_EQ(stages.size(), 5u);
  EXPECT_EQ(stages[4]["memory_bytes"], Bytes(Parallel().spec, 5));
}

// Issue 22, defect 28.
TEST(DataParallel, WhoSubmitsSeesTheNumberOfShards) {
  SubmitOptions options = Parallel();
  options.spec.aggregation.shards = 0;
  options.spec.aggregation.rule = "mean";
  options.spec.aggregation.k = 0;
  CommandBed dry(OutputFormat::kJson);
  dry.client.submissions = {OnWorkers(5)};
  CommandBed detached;
  detached.client.submissions = {OnWorkers(5)};

  EXPECT_EQ(SubmitCommand(dry.context, options), kExitOk);
  options.dry_run = false;
  options.detach = true;
  EXPECT_EQ(SubmitCommand(detached.context, options), kExitOk);

  EXPECT_EQ(json::parse(dry.out.str())["shards"], 5);
  EXPECT_THAT(detached.err.str(), HasSubstr("  shards: 5\n"));
  // Nobody knows how many members there will be.
  EXPECT_EQ(EstimateJob(options.spec, {})->shards, 0);
}

TEST(DataParallel, WithoutWorkersTheMembersThatTheJobNamesAreCounted) {
  JobSpec spec = Parallel().spec;
  spec.aggregation.members = 6;

  const auto estimate = EstimateJob(spec, {});

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_TRUE(estimate->chosen) << "there is one stage";
  EXPECT_EQ(estimate->stages[0].memory_bytes, Bytes(spec, 6));
}

TEST(DataParallel, ARulesViolatedAssumptionsAreNotedAtSubmit) {
  CommandBed bed;
  bed.client.submissions = {OnWorkers(4)};

  EXPECT_EQ(SubmitCommand(bed.context, Parallel()), kExitOk);

  EXPECT_THAT(bed.err.str(),
              AllOf(HasSubstr("note: rule krum withstands k=1 liars of at "
                              "least 5 members"),
                    HasSubstr("there are 4")));
}

TEST(DataParallel, AndSoAreThoseOfTheFewestPartsOfARound) {
  CommandBed bed;
  bed.client.submissions = {OnWorkers(5)};

  EXPECT_EQ(SubmitCommand(bed.context, Parallel()), kExitOk);

  EXPECT_THAT(
      bed.err.str(),
      AllOf(HasSubstr("note: a round may close with min_parts=4 of 5 parts"),
            HasSubstr("set aggregation.min_parts to at least 5"),
            Not(HasSubstr("note: rule krum"))));
}

}  // namespace
}  // namespace paceline
