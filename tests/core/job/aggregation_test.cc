#include "core/job/aggregation.h"

#include "core/job/job_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobSpec SpecOfMembers() {
  JobSpec spec;
  spec.name = "first";
  spec.model.name = "lenet";
  spec.data.name = "fashion-mnist";
  spec.train.micro_batch = 4;
  spec.aggregation.mode = "rolling";
  return spec;
}

JobSpec NamedSpec() {
  JobSpec spec = SpecOfMembers();
  spec.aggregation.workers = {"w1", "w2", "w3", "w4", "w5"};
  return spec;
}

TEST(Aggregation, AJobWithDefaultsIsGood) {
  for (const char* mode : {"none", "rolling", "central", "gossip"}) {
    JobSpec spec = SpecOfMembers();
    spec.aggregation.mode = mode;

    EXPECT_THAT(CheckJobSpec(spec), IsEmpty()) << mode;
    EXPECT_EQ(IsDataParallel(spec), std::string(mode) != "none");
  }
}

TEST(Aggregation, EveryRuleIsGoodAmongEnoughMembers) {
  for (const char* rule :
       {"mean", "median", "trimmed-mean", "krum", "suspicion", "zeno"}) {
    JobSpec spec = NamedSpec();
    spec.aggregation.rule = rule;
    spec.aggregation.k = 1;

    EXPECT_THAT(CheckJobSpec(spec), IsEmpty()) << rule;
  }
}

const BadJob kBad[] = {
    {"aggregation.mode=roling", "did you mean 'rolling'?"},
    {"kind=infer", "is for training", "aggregation.mode"},
    {"model.name=resnet18; data.name=synthetic; data.shape=3,32,32; "
     "aggregation.rule=krum",
     "would judge members by the statistics of", "aggregation.rule"},
    {"aggregation.rule=medain", "did you mean 'median'?"},
    {"aggregation.rule=oracle",
     "choose one of: mean, median, trimmed-mean, krum"},
    {"aggregation.k=-1", "from 0 to"},
    {"aggregation.rule=trimmed-mean; aggregation.k=3",
     "leaves no part of 5 members: use k of at most 2"},
    {"aggregation.rule=krum; aggregation.k=3",
     "no part to compare with of 5 members"},
    {"aggregation.rule=suspicion; aggregation.k=5",
     "drops k members and leaves no part of 5 members"},
    {"aggregation.rule=zeno; aggregation.k=5",
     "drops k members and leaves no part of 5 members"},
    {"aggregation.rule=krum; aggregation.selected=5; aggregation.k=1",
     "select at most 4"},
    {"aggregation.workers=; aggregation.members=3; "
     "aggregation.rule=trimmed-mean; aggregation.k=2",
     "of 3 members"},
    {"aggregation.selected=0", "from 1 to"},
    {"aggregation.alpha=0", "greater than 0"},
    {"aggregation.gamma=-1", "0 (the learning rate) or more"},
    {"aggregation.rho=nan", "0 or more"},
    {"aggregation.trusted=0", "from 1 to"},
    {"aggregation.shards=-1", "from 0 to 64, got -1"},
    {"aggregation.shards=65", "from 0 to 64, got 65"},
    {"aggregation.rule=krum; aggregation.shards=2",
     "rule krum judges whole parts"},
    {"aggregation.rule=zeno; aggregation.shards=5",
     "rule zeno judges whole parts"},
    {"aggregation.shards=6", "is 6, but there are 5 members"},
    {"aggregation.min_parts=0", "from 1 to"},
    {"aggregation.min_parts=6", "is 6, but there are 5 members"},
    {"aggregation.workers=; aggregation.members=2; aggregation.min_parts=3",
     "is 3, but there are 2 members"},
    {"aggregation.members=-1", "from 0 to"},
    {"aggregation.members=4", "but aggregation.workers names 5"},
    {"aggregation.deadline=0", "greater than 0"},
    {"aggregation.codec=bf61", "did you mean 'bf16'?"},
    {"aggregation.workers=w1,w1,w3,w4,w5", "names a worker twice"},
    {"aggregation.workers=w1,,w3,w4,w5", "an empty name"},
    {"aggregation.shares=1,2", "each of the 5 workers, got 1,2"},
    {"aggregation.shares=1,1,1,1,0", "positive number"},
    {"aggregation.shares=1,1,1,1,5e-324", "positive number"},
    {"aggregation.workers=; aggregation.shares=1", "needs these"},
    {"train.micro_batch=16", "lower it to at most 12"},
    {"train.batch=4", "raise train.batch to at least 5", "train.micro_batch"},
    {"pipeline.stages=2", "is 2, but every member of a data-parallel job"},
    {"pipeline.cuts=2", "holds the whole model"},
    {"pipeline.stages=1; pipeline.workers=w1",
     "name the members in aggregation.workers"},
    {"pipeline.schedule=pipedream", "updates without waiting for a round"},
    {"faults[0].kind=nan; faults[0].worker=w9", "unknown worker 'w9'"},
    {"faults[0].kind=nan; faults[0].worker=", "is missing"},
    {"faults[0].kind=nan; faults[1].kind=signflip",
     "did you mean 'sign-flip'?"},
    {"faults[0].kind=", "names no kind of fault"},
    {"faults[0].kind=kill; faults[0].step=-1", "from 0 to"},
    {"faults[0].kind=kill; faults[0].steps=-2", "from 0 to"},
    {"faults[0].kind=hang; faults[0].seconds=1e9", "at most 3600"},
    {"faults[0].kind=sign-flip; faults[0].scale=nan", "greater than 0"},
    {"aggregation.mode=gossip; aggregation.rule=median",
     "is median, but mode gossip averages two members'"},
    {"aggregation.mode=gossip; aggregation.k=1",
     "is 1, but mode gossip withstands no liars: leave k out"},
    {"aggregation.mode=gossip; aggregation.shards=2",
     "is 2, but mode gossip has no servers"},
    {"aggregation.mode=gossip; aggregation.min_parts=2",
     "is 2, but mode gossip has no rounds"},
    {"aggregation.mode=gossip; aggregation.conflict=true",
     "exchanges parameters"},
    {"aggregation.mode=gossip; aggregation.codec=bf16",
     "is bf16, but mode gossip sends parameters"},
    {"model.name=resnet18; data.name=synthetic; data.shape=3,32,32; "
     "aggregation.mode=gossip",
     "members would not agree on"},
    {"aggregation.mode=gossip; aggregation.deadline=-1", "greater than 0"},
    {"aggregation.mode=gossip; faults[0].kind=kill; faults[0].phase=gathering",
     "is gathering, a phase of a server, but mode gossip"},
    {"aggregation.mode=none; faults[0].kind=kill", "for data-parallel jobs",
     "faults"},
};

TEST(Aggregation, BadOnesAreNamedWithWhatWouldBeRight) {
  ASSERT_THAT(CheckJobSpec(NamedSpec()), IsEmpty());
  for (const BadJob& bad : kBad) {
    JobSpec spec = NamedSpec();

    ChangeJob(spec, bad.changes);

    EXPECT_THAT(WhyAt(spec, bad.Path()), HasSubstr(bad.why)) << bad.changes;
  }
}

TEST(Aggregation, ZenosStepIsTheLearningRateUnlessTheJobSaysAnother) {
  JobSpec spec = SpecOfMembers();
  spec.train.learning_rate.base = 0.25;
  EXPECT_EQ(RuleOf(spec).gamma, 0.25);

  spec.aggregation.gamma = 0.5;

  EXPECT_EQ(RuleOf(spec).gamma, 0.5);
}

// Four liars of nine are outvoted by five honest ones, and only by all five.
TEST(Aggregation, ViolatedAssumptionsAreNotedWithTheirNumbers) {
  const auto notes = [](const char* rule, int k, int min_parts, int members) {
    JobSpec spec = SpecOfMembers();
    spec.aggregation.rule = rule;
    spec.aggregation.k = k;
    spec.aggregation.min_parts = min_parts;
    return AggregationNotes(spec, members);
  };
  EXPECT_THAT(
      notes("krum", 2, 5, 5),
      ElementsAre(AllOf(HasSubstr("withstands k=2 liars of at least 7 members"),
                        HasSubstr("there are 5"))));
  EXPECT_THAT(
      notes("trimmed-mean", 2, 3, 5),
      ElementsAre(AllOf(
          HasSubstr("a round may close with min_parts=3 of 5 parts"),
          HasSubstr("use k of at most 1"), HasSubstr("such rounds are void"),
          HasSubstr("set aggregation.min_parts to at least 5"))))
      << "it holds for all members, and not for as few as a round takes";
  EXPECT_THAT(notes("trimmed-mean", 2, 5, 5), IsEmpty());
  EXPECT_THAT(
      notes("median", 4, 5, 9),
      ElementsAre(AllOf(
          HasSubstr("a round may close with min_parts=5 of 9 parts"),
          HasSubstr("withstands k=4 liars of at least 9 members"),
          HasSubstr("there are 5"),
          HasSubstr("set aggregation.min_parts to at least 9 to have it"))));
  EXPECT_THAT(notes("median", 4, 9, 9), IsEmpty());
  EXPECT_THAT(notes("median", 4, 5, 7),
              ElementsAre(HasSubstr("there are 7"),
                          AllOf(HasSubstr("min_parts=5 of 7"),
                                Not(HasSubstr("at least 9 to have")))))
      << "all members are too few: no number of parts would help";
}

TEST(Aggregation, AKThatLeavesNoPartOfTheMembersThereAreIsRefused) {
  JobSpec spec = SpecOfMembers();  // whoever comes
  spec.aggregation.rule = "trimmed-mean";
  spec.aggregation.k = 3;
  ASSERT_THAT(CheckJobSpec(spec), IsEmpty());

  const absl::Status refused = CheckMembersOfRule(spec, 5);

  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr("aggregation.k: rule trimmed-mean with k=3"),
            HasSubstr("leaves no part of 5 members: use k of at most "
                      "2; or set aggregation.min_parts to at least 7")));
  EXPECT_TRUE(CheckMembersOfRule(spec, 7).ok());
  spec.aggregation.mode = "none";
  EXPECT_TRUE(CheckMembersOfRule(spec, 5).ok());
}

TEST(Aggregation, MoreShardsThanTheMembersThatThereAreAreRefused) {
  JobSpec spec = SpecOfMembers();
  spec.aggregation.shards = 3;

  const absl::Status refused = CheckMembersOfRule(spec, 2);

  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("aggregation.shards: is 3, but there are 2 members"));
  EXPECT_TRUE(CheckMembersOfRule(spec, 3).ok());
}

TEST(Aggregation,
     UnlessSaidThereAreAtMostAsManyShardsAsMembersAndTheRuleAllow) {
  struct Case {
    int64_t members;
    const char* changes;
    int32_t shards;
  };
  for (const auto& [members, changes, shards] :
       {Case{1, "", 1}, Case{4, "", 4}, Case{100, "", 64},
        Case{4, "aggregation.shards=3", 3},
        Case{4, "aggregation.rule=median", 4},
        Case{4, "aggregation.rule=trimmed-mean", 4},
        Case{4, "aggregation.rule=krum", 1},
        Case{4, "aggregation.rule=suspicion", 1},
        Case{4, "aggregation.rule=zeno", 1},
        Case{4, "aggregation.mode=central", 1},
        Case{4, "aggregation.mode=gossip", 1}}) {
    JobSpec spec = SpecOfMembers();
    spec.aggregation.shards = 0;
    const ModelDescription model =
        DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
    ChangeJob(spec, changes);

    EXPECT_EQ(ShardsOf(spec, model, members), shards)
        << members << " members, " << changes;
  }
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

TEST(Aggregation, MoreMembersThanMicroBatchesAreNoted) {
  const JobSpec spec = SpecOfMembers();  // 16 micro-batches

  EXPECT_THAT(AggregationNotes(spec, 16), IsEmpty());
  EXPECT_THAT(AggregationNotes(spec, 17),
              ElementsAre(HasSubstr("16 micro-batches for 17 members")));
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
