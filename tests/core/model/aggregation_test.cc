#include "core/model/aggregation.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobSpec GoodSpec() {
  JobSpec spec;
  spec.name = "first";
  spec.model.name = "lenet";
  spec.data.name = "fashion-mnist";
  spec.train.micro_batch = 4;
  spec.aggregation.mode = "rolling";
  return spec;
}

JobSpec NamedSpec() {
  JobSpec spec = GoodSpec();
  spec.aggregation.workers = {"w1", "w2", "w3", "w4", "w5"};
  return spec;
}

// What is wrong at `path`; "nothing" when nothing is.
std::string WhyAt(const JobSpec& spec, const std::string& path) {
  for (const SpecProblem& problem : CheckJobSpec(spec)) {
    if (problem.path == path) return problem.why;
  }
  return "nothing";
}

TEST(Aggregation, AJobWithDefaultsIsGood) {
  for (const char* mode : {"none", "rolling", "central", "gossip"}) {
    JobSpec spec = GoodSpec();
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

// A change that makes a good spec bad, and what is then said.
struct BadAggregation {
  const char* path;
  const char* why;  // part of it
  void (*spoil)(JobSpec&);
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const BadAggregation kBad[] = {
    {"aggregation.mode", "did you mean 'rolling'?",
     [](JobSpec& s) { s.aggregation.mode = "roling"; }},
    {"aggregation.mode", "is for training",
     [](JobSpec& s) { s.kind = kInferKind; }},
    {"aggregation.mode", "members would not agree on",
     [](JobSpec& s) {
       s.model.name = "resnet18";
       s.data.name = "synthetic";
       s.data.shape = {3, 32, 32};
     }},
    {"aggregation.rule", "did you mean 'median'?",
     [](JobSpec& s) { s.aggregation.rule = "medain"; }},
    {"aggregation.rule", "choose one of: mean, median, trimmed-mean, krum",
     [](JobSpec& s) { s.aggregation.rule = "oracle"; }},
    {"aggregation.k", "from 0 to", [](JobSpec& s) { s.aggregation.k = -1; }},
    {"aggregation.k", "leaves no part of 5 members: use k of at most 2",
     [](JobSpec& s) {
       s.aggregation.rule = "trimmed-mean";
       s.aggregation.k = 3;
     }},
    {"aggregation.k", "no part to compare with of 5 members",
     [](JobSpec& s) {
       s.aggregation.rule = "krum";
       s.aggregation.k = 3;
     }},
    {"aggregation.k", "drops k members and leaves no part of 5 members",
     [](JobSpec& s) {
       s.aggregation.rule = "suspicion";
       s.aggregation.k = 5;
     }},
    {"aggregation.k", "drops k members and leaves no part of 5 members",
     [](JobSpec& s) {
       s.aggregation.rule = "zeno";
       s.aggregation.k = 5;
     }},
    {"aggregation.k", "select at most 4",
     [](JobSpec& s) {
       s.aggregation.rule = "krum";
       s.aggregation.k = 1;
       s.aggregation.selected = 5;
     }},
    {"aggregation.k", "of 3 members",
     [](JobSpec& s) {
       s.aggregation.workers.clear();
       s.aggregation.members = 3;
       s.aggregation.rule = "trimmed-mean";
       s.aggregation.k = 2;
     }},
    {"aggregation.selected", "from 1 to",
     [](JobSpec& s) { s.aggregation.selected = 0; }},
    {"aggregation.alpha", "greater than 0",
     [](JobSpec& s) { s.aggregation.alpha = 0; }},
    {"aggregation.gamma", "greater than 0, or 0",
     [](JobSpec& s) { s.aggregation.gamma = -1; }},
    {"aggregation.rho", "0 or more",
     [](JobSpec& s) { s.aggregation.rho = kNan; }},
    {"aggregation.trusted", "from 1 to",
     [](JobSpec& s) { s.aggregation.trusted = 0; }},
    {"aggregation.shards", "from 0 to 64, got -1",
     [](JobSpec& s) { s.aggregation.shards = -1; }},
    {"aggregation.shards", "from 0 to 64, got 65",
     [](JobSpec& s) { s.aggregation.shards = 65; }},
    {"aggregation.shards", "rule krum judges whole parts",
     [](JobSpec& s) {
       s.aggregation.rule = "krum";
       s.aggregation.shards = 2;
     }},
    {"aggregation.shards", "rule zeno judges whole parts",
     [](JobSpec& s) {
       s.aggregation.rule = "zeno";
       s.aggregation.shards = 5;
     }},
    {"aggregation.min_parts", "from 1 to",
     [](JobSpec& s) { s.aggregation.min_parts = 0; }},
    {"aggregation.min_parts", "is 6, but there are 5 members",
     [](JobSpec& s) { s.aggregation.min_parts = 6; }},
    {"aggregation.min_parts", "is 3, but there are 2 members",
     [](JobSpec& s) {
       s.aggregation.workers.clear();
       s.aggregation.members = 2;
       s.aggregation.min_parts = 3;
     }},
    {"aggregation.members", "from 0 to",
     [](JobSpec& s) { s.aggregation.members = -1; }},
    {"aggregation.members", "but aggregation.workers names 5",
     [](JobSpec& s) { s.aggregation.members = 4; }},
    {"aggregation.deadline", "greater than 0",
     [](JobSpec& s) { s.aggregation.deadline = 0; }},
    {"aggregation.codec", "did you mean 'bf16'?",
     [](JobSpec& s) { s.aggregation.codec = "bf61"; }},
    {"aggregation.workers", "names a worker twice",
     [](JobSpec& s) { s.aggregation.workers[1] = "w1"; }},
    {"aggregation.workers", "an empty name",
     [](JobSpec& s) { s.aggregation.workers[1] = ""; }},
    {"aggregation.shares", "each of the 5 workers, got 1,2",
     [](JobSpec& s) {
       s.aggregation.shares = {1, 2};
     }},
    {"aggregation.shares", "positive number",
     [](JobSpec& s) {
       s.aggregation.shares = {1, 1, 1, 1, 0};
     }},
    {"aggregation.shares", "needs these",
     [](JobSpec& s) {
       s.aggregation.workers.clear();
       s.aggregation.shares = {1};
     }},
    {"train.micro_batch", "lower it to at most 12",
     [](JobSpec& s) { s.train.micro_batch = 16; }},
    {"train.micro_batch", "raise train.batch to at least 5",
     [](JobSpec& s) { s.train.batch = 4; }},
    {"pipeline.stages", "is 2, but every member of a data-parallel job",
     [](JobSpec& s) { s.pipeline.stages = 2; }},
    {"pipeline.cuts", "holds the whole model",
     [](JobSpec& s) { s.pipeline.cuts = {2}; }},
    {"pipeline.workers", "name the members in aggregation.workers",
     [](JobSpec& s) {
       s.pipeline.stages = 1;
       s.pipeline.workers = {"w1"};
     }},
    {"pipeline.schedule", "updates without waiting for a round",
     [](JobSpec& s) { s.pipeline.schedule = "pipedream"; }},
    {"faults[0].worker", "unknown worker 'w9'",
     [](JobSpec& s) { s.faults = {{.worker = "w9", .kind = "nan"}}; }},
    {"faults[0].worker", "is missing",
     [](JobSpec& s) { s.faults = {{.worker = "", .kind = "nan"}}; }},
    {"faults[1].kind", "did you mean 'sign-flip'?",
     [](JobSpec& s) {
       s.faults = {{.worker = "w1", .kind = "nan"},
                   {.worker = "w1", .kind = "signflip"}};
     }},
    {"faults[0].kind", "names no kind of fault",
     [](JobSpec& s) { s.faults = {{.worker = "w1", .kind = ""}}; }},
    {"faults[0].step", "from 0 to",
     [](JobSpec& s) {
       s.faults = {{.worker = "w1", .step = -1, .kind = "kill"}};
     }},
    {"faults[0].steps", "from 0 to",
     [](JobSpec& s) {
       s.faults = {{.worker = "w1", .kind = "kill", .steps = -2}};
     }},
    {"faults[0].seconds", "at most 3600",
     [](JobSpec& s) {
       s.faults = {{.worker = "w1", .kind = "hang", .seconds = 1e9}};
     }},
    {"faults[0].scale", "greater than 0",
     [](JobSpec& s) {
       s.faults = {{.worker = "w1", .kind = "sign-flip", .scale = kNan}};
     }},
    {"aggregation.rule", "is median, but mode gossip averages two members'",
     [](JobSpec& s) {
       s.aggregation.mode = "gossip";
       s.aggregation.rule = "median";
     }},
    {"aggregation.k", "is 1, but mode gossip withstands no liars: leave k out",
     [](JobSpec& s) {
       s.aggregation.mode = "gossip";
       s.aggregation.k = 1;
     }},
    {"aggregation.shards", "is 2, but mode gossip has no servers",
     [](JobSpec& s) {
       s.aggregation.mode = "gossip";
       s.aggregation.shards = 2;
     }},
    {"aggregation.min_parts", "is 2, but mode gossip has no rounds",
     [](JobSpec& s) {
       s.aggregation.mode = "gossip";
       s.aggregation.min_parts = 2;
     }},
    {"aggregation.codec", "is bf16, but mode gossip sends parameters",
     [](JobSpec& s) {
       s.aggregation.mode = "gossip";
       s.aggregation.codec = "bf16";
     }},
    {"aggregation.mode", "members would not agree on",
     [](JobSpec& s) {
       s.aggregation.mode = "gossip";
       s.model.name = "resnet18";
       s.data.name = "synthetic";
       s.data.shape = {3, 32, 32};
     }},
    {"aggregation.deadline", "greater than 0",
     [](JobSpec& s) {
       s.aggregation.mode = "gossip";
       s.aggregation.deadline = -1;
     }},
    {"faults[0].phase", "is gathering, a phase of a server, but mode gossip",
     [](JobSpec& s) {
       s.aggregation.mode = "gossip";
       s.faults = {{.worker = "w1", .kind = "kill", .phase = "gathering"}};
     }},
    {"faults", "are for data-parallel jobs",
     [](JobSpec& s) {
       s.aggregation.mode = "none";
       s.faults = {{.worker = "w1", .kind = "kill"}};
     }},
};

class BadAggregations : public testing::TestWithParam<BadAggregation> {};

TEST_P(BadAggregations, AreNamedWithWhatWouldBeRight) {
  JobSpec spec = NamedSpec();
  ASSERT_THAT(CheckJobSpec(spec), IsEmpty());

  GetParam().spoil(spec);

  EXPECT_THAT(WhyAt(spec, GetParam().path), HasSubstr(GetParam().why));
}

INSTANTIATE_TEST_SUITE_P(Aggregation, BadAggregations, testing::ValuesIn(kBad));

TEST(Aggregation, ZenosStepIsTheLearningRateUnlessTheJobSaysAnother) {
  JobSpec spec = GoodSpec();
  spec.train.learning_rate.base = 0.25;
  EXPECT_EQ(RuleOf(spec).gamma, 0.25);

  spec.aggregation.gamma = 0.5;

  EXPECT_EQ(RuleOf(spec).gamma, 0.5);
}

TEST(Aggregation, ViolatedAssumptionsAreNotedWithTheirNumbers) {
  JobSpec spec = NamedSpec();
  spec.aggregation.rule = "krum";
  spec.aggregation.k = 2;
  spec.aggregation.min_parts = 5;
  ASSERT_THAT(CheckJobSpec(spec), IsEmpty());

  EXPECT_THAT(AggregationNotes(spec, 5),
              Contains(AllOf(HasSubstr("withstands k=2 liars of at least 7 "
                                       "members"),
                             HasSubstr("there are 5"))));
}

TEST(Aggregation, WhatHoldsForAllMembersMayNotHoldForAsFewAsARoundTakes) {
  JobSpec spec = NamedSpec();
  spec.aggregation.rule = "trimmed-mean";
  spec.aggregation.k = 2;
  spec.aggregation.min_parts = 3;

  EXPECT_THAT(
      AggregationNotes(spec, 5),
      ElementsAre(AllOf(
          HasSubstr("a round may close with min_parts=3 of 5 parts"),
          HasSubstr("use k of at most 1"), HasSubstr("such rounds are void"),
          HasSubstr("set aggregation.min_parts to at least 5"))));
  spec.aggregation.min_parts = 5;
  EXPECT_THAT(AggregationNotes(spec, 5), IsEmpty());
}

// Four liars of nine are outvoted by five honest ones, and only by all five.
TEST(Aggregation, SaysHowManyPartsARoundMustWaitForToWithstandItsLiars) {
  JobSpec spec = GoodSpec();
  spec.aggregation.members = 9;
  spec.aggregation.rule = "median";
  spec.aggregation.k = 4;
  spec.aggregation.min_parts = 5;
  ASSERT_THAT(CheckJobSpec(spec), IsEmpty());

  EXPECT_THAT(
      AggregationNotes(spec, 9),
      ElementsAre(AllOf(
          HasSubstr("a round may close with min_parts=5 of 9 parts"),
          HasSubstr("withstands k=4 liars of at least 9 members"),
          HasSubstr("there are 5"),
          HasSubstr("set aggregation.min_parts to at least 9 to have it"))));
  spec.aggregation.min_parts = 9;
  EXPECT_THAT(AggregationNotes(spec, 9), IsEmpty());
}

TEST(Aggregation, NamesNoNumberOfPartsWhereAllMembersAreTooFew) {
  JobSpec spec = GoodSpec();
  spec.aggregation.rule = "median";
  spec.aggregation.k = 4;
  spec.aggregation.min_parts = 5;

  EXPECT_THAT(AggregationNotes(spec, 7),
              ElementsAre(HasSubstr("there are 7"),
                          AllOf(HasSubstr("min_parts=5 of 7"),
                                Not(HasSubstr("at least 9 to have")))));
}

TEST(Aggregation, AKThatLeavesNoPartOfTheMembersThereAreIsRefused) {
  JobSpec spec = GoodSpec();  // whoever comes
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

// Issue 22, defect 28.
TEST(Aggregation, UnlessSaidThereAreAsManyShardsAsMembersWhereTheRuleAllowsIt) {
  JobSpec spec = GoodSpec();
  spec.aggregation.shards = 0;
  const ModelDescription model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
  const auto shards = [&](int64_t members, auto change) {
    JobSpec changed = spec;
    change(changed.aggregation);
    return ShardsOf(changed, model, members);
  };
  const auto nothing = [](AggregationSpec&) {};

  EXPECT_EQ(shards(1, nothing), 1);
  EXPECT_EQ(shards(4, nothing), 4);
  EXPECT_EQ(shards(100, nothing), 64);
  EXPECT_EQ(shards(4, [](auto& a) { a.shards = 3; }), 3);
  for (const char* rule : {"median", "trimmed-mean"}) {
    EXPECT_EQ(shards(4, [&](auto& a) { a.rule = rule; }), 4) << rule;
  }
  for (const char* rule : {"krum", "suspicion", "zeno"}) {
    EXPECT_EQ(shards(4, [&](auto& a) { a.rule = rule; }), 1) << rule;
  }
  for (const char* mode : {"central", "gossip"}) {
    EXPECT_EQ(shards(4, [&](auto& a) { a.mode = mode; }), 1) << mode;
  }
}

TEST(Aggregation, ThereAreNoMoreShardsThanBlocksOfParameters) {
  JobSpec spec = GoodSpec();
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
  const JobSpec spec = GoodSpec();  // 16 micro-batches

  EXPECT_THAT(AggregationNotes(spec, 16), IsEmpty());
  EXPECT_THAT(AggregationNotes(spec, 17),
              ElementsAre(HasSubstr("16 micro-batches for 17 members")));
}

TEST(Aggregation, AFaultOfAWorkerThatIsNotThereIsNamed) {
  JobSpec spec = GoodSpec();
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
