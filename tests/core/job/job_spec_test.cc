#include "core/job/spec/job_spec.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/data/data_sets.h"
#include "core/job/aggregation.h"
#include "core/job/job_check.h"
#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/job_changes.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

JobSpec GoodSpec() {
  JobSpec spec;
  spec.name = "first";
  spec.model.name = "lenet";
  spec.data.name = "synthetic";
  return spec;
}

TEST(JobSpec, GoodOnesHaveNoProblems) {
  for (const char* data : {"synthetic", "fashion-mnist"}) {
    for (const std::string& model : ModelNames()) {
      const CatalogEntry* const entry = FindModel(model);
      if (std::string(entry->synthetic) != "synthetic") continue;
      JobSpec spec = GoodSpec();
      spec.data.name = data;
      spec.model = entry->model;
      if (!FindDataSet(data)->own_shape) {
        spec.data.shape = entry->input;
        spec.data.classes = entry->classes;
      } else if (entry->input != spec.data.shape) {
        continue;
      }

      EXPECT_THAT(CheckJobSpec(spec), IsEmpty()) << model << " on " << data;
    }
  }
}

// A language model on the synthetic set that is like its samples.
JobSpec LanguageSpec(const std::string& model) {
  JobSpec spec = GoodSpec();
  const CatalogEntry* const entry = FindModel(model);
  spec.model = entry->model;
  spec.data.shape = {16};
  spec.data.classes = std::min(entry->classes, 300);
  spec.data = WithSyntheticData(spec.model, spec.data);
  return spec;
}

// Stage 0 on one worker, stage 1 on two.
JobSpec Replicated() {
  JobSpec spec = GoodSpec();
  spec.kind = kInferKind;
  spec.train = ForInference(spec.infer, 1);
  spec.pipeline.stages = 0;
  spec.pipeline.cuts = {1};
  spec.pipeline.workers = {"a", "b", "c"};
  spec.pipeline.replicas = {1, 2};
  spec.pipeline.shares = {1, 0.5, 0.5};
  return spec;
}

JobSpec MembersSpec() {
  JobSpec spec;
  spec.name = "first";
  spec.model.name = "lenet";
  spec.data.name = "fashion-mnist";
  spec.train.micro_batch = 4;
  spec.aggregation.mode = "rolling";
  return spec;
}

// The job with which a question begins.
JobSpec JobOf(const std::string& kind) {
  if (kind == "job") return GoodSpec();
  if (kind == "replicas") return Replicated();
  if (kind == "training") {
    JobSpec spec = Replicated();
    spec.kind = kTrainKind;
    spec.train = GoodSpec().train;
    ChangeJob(spec, "train.batch=8; train.micro_batch=2");
    return spec;
  }
  if (kind != "members" && kind != "named") return LanguageSpec(kind);
  JobSpec spec = MembersSpec();
  if (kind == "named") ChangeJob(spec, "aggregation.workers=w1,w2,w3,w4,w5");
  return spec;
}

std::string TextOf(const std::vector<SpecProblem>& problems) {
  std::string text;
  for (const SpecProblem& problem : problems) {
    absl::StrAppend(&text, problem.path, ": ", problem.why, "\n");
  }
  return text.empty() ? "good" : text;
}

// A question is "data" and the name of a set, or JOB [on DATA], and CHANGES, or
// "of", "notes" or "shards" and how many members there are before it.  Answers
// what is wrong with the job.
std::string Answer(const std::string& question) {
  std::vector<std::string> words = absl::StrSplit(question, ' ');
  const auto next = [&words] {
    std::string word = words.empty() ? "" : words.front();
    if (!words.empty()) words.erase(words.begin());
    return word;
  };
  const std::string what = words[0];
  const bool counts = what == "of" || what == "notes" || what == "shards";
  if (counts) next();
  const int members = counts ? std::stoi(next()) : 0;
  if (what == "data") {
    next();
    words.insert(words.begin(), {"job", "on"});
  }
  JobSpec spec = JobOf(next());
  if (!words.empty() && words[0] == "on") {
    next();
    spec.data = DefaultDataSpec(next());
    spec.data.path = "/somewhere";
  }
  std::string changes;
  EXPECT_TRUE(absl::CUnescape(absl::StrJoin(words, " "), &changes));
  ChangeJob(spec, changes);
  if (what == "of") return CheckMembersOfRule(spec, members).ToString();
  if (what == "notes") {
    return absl::StrJoin(AggregationNotes(spec, members), "\n");
  }
  if (what == "shards") {
    return absl::StrCat(ShardsOf(spec, *DescribeModel(spec), members));
  }
  if (what == "data") {
    SpecProblems problems;
    CheckDataSpec(spec.data, problems);
    return TextOf(problems.Take());
  }
  return TextOf(CheckJobSpec(spec));
}

TEST(JobSpec, WhatIsWrongIsNamedWithWhatWouldBeRight) {
  ExpectAnswers("core/job_specs", Answer);
}

TEST(DidYouMean, FindsTheNearestWithinAThird) {
  const std::vector<std::string> known = {"gpipe", "1f1b", "fashion-mnist"};

  EXPECT_EQ(DidYouMean("gpip", known), "gpipe");
  EXPECT_EQ(DidYouMean("GPipe", known), "gpipe");
  EXPECT_EQ(DidYouMean("1f1c", known), "1f1b");
  EXPECT_EQ(DidYouMean("fashionmnst", known), "fashion-mnist");
  EXPECT_EQ(DidYouMean("mnist", known), "");
  EXPECT_EQ(DidYouMean("gqipf", known), "");
  EXPECT_EQ(DidYouMean("", known), "");
  EXPECT_EQ(DidYouMean("x", {}), "");
}

TEST(DidYouMean, CountsTwoLettersThatChangedPlacesAsOneMistake) {
  EXPECT_EQ(DidYouMean("trian", {"name", "model", "train"}), "train");
  EXPECT_EQ(DidYouMean("etst", {"test"}), "test");
}

TEST(DidYouMean, TakesTheFirstOfEqualDistance) {
  EXPECT_EQ(DidYouMean("bat", {"cat", "rat"}), "cat");
}

TEST(JobSpec, DoesWithoutAReplicaThatIsAbsentButNotWithoutAStage) {
  const JobSpec spec = Replicated();
  const auto without = [&spec](const std::string& absent) {
    return WithoutAbsentReplicas(spec,
                                 [&](const std::string& name) {
                                   return absent.find(name) ==
                                          std::string::npos;
                                 })
        .pipeline;
  };

  EXPECT_EQ(without("").workers, spec.pipeline.workers);
  EXPECT_THAT(without("b").workers, ElementsAre("a", "c"));
  EXPECT_THAT(without("b").replicas, ElementsAre(1, 1));
  EXPECT_THAT(without("b").shares, ElementsAre(1, 0.5));
  EXPECT_THAT(without("a").workers, ElementsAre("a", "b", "c"));
  EXPECT_THAT(without("bc").workers, ElementsAre("a", "c"));
}

std::vector<std::pair<int, int>> Segments(const char* name, int layers) {
  return SegmentsOf(FindRecompute(name).value(), layers);
}

TEST(Recompute, KnowsItsThreeWords) {
  EXPECT_FALSE(FindRecompute("none")->recomputes);
  EXPECT_TRUE(FindRecompute("stage")->recomputes);
  EXPECT_EQ(FindRecompute("stage")->every, kWholeStage);
  EXPECT_TRUE(FindRecompute("every-2")->recomputes);
  EXPECT_EQ(FindRecompute("every-2")->every, 2);
  EXPECT_EQ(FindRecompute("every-1000000")->every, kMostLayersASegment);
}

TEST(Recompute, KnowsNoOther) {
  for (const char* word :
       {"", "None", "stages", "every", "every-", "every-0", "every--1",
        "every-+2", "every- 2", "every-2 ", "every-2x", "every-1000001",
        "every-99999999999999999999", "every_2", "2"}) {
    EXPECT_FALSE(FindRecompute(word).has_value()) << "'" << word << "'";
  }
}

TEST(Recompute, CutsAStageFromItsFirstLayerOn) {
  EXPECT_THAT(Segments("every-2", 5),
              ElementsAre(Pair(0, 2), Pair(2, 4), Pair(4, 5)));
  EXPECT_THAT(Segments("every-1", 2), ElementsAre(Pair(0, 1), Pair(1, 2)));
  EXPECT_THAT(Segments("every-9", 5), ElementsAre(Pair(0, 5)));
  EXPECT_THAT(Segments("stage", 5), ElementsAre(Pair(0, 5)));
  EXPECT_THAT(Segments("none", 5), ElementsAre(Pair(0, 5)));
}

TEST(FaultPlan, TellsWhatAWorkerDoesWrongInAStep) {
  const FaultPlan plan({{"w1", 3, "sign-flip", 2, 1, 10},
                        {"w1", 4, "delay", 1, 0.5},
                        {"w2", 3, "nan"}},
                       "w1", true);

  EXPECT_EQ(plan.At(2), StepFaults());
  EXPECT_EQ(plan.At(3).sign_flip, 10);
  EXPECT_FALSE(plan.At(3).nan);
  EXPECT_EQ(plan.At(4).sign_flip, 10);
  EXPECT_EQ(plan.At(4).delay, absl::Milliseconds(500));
  EXPECT_EQ(plan.At(5), StepFaults());
}

TEST(FaultPlan, ZeroStepsLastToTheEnd) {
  const FaultPlan plan({{"w1", 3, "label-flip", 0}}, "w1", true);

  EXPECT_FALSE(plan.At(2).label_flip);
  EXPECT_TRUE(plan.At(1'000'000).label_flip);
}

TEST(FaultPlan, KnowsEveryKind) {
  for (const char* const kind :
       {"kill", "hang", "delay", "bit-flip", "sign-flip", "label-flip",
        "gaussian", "nan", "duplicate"}) {
    EXPECT_NE(FaultPlan({{"w1", 0, kind}}, "w1", true).At(0), StepFaults())
        << kind;
  }
}

TEST(FaultPlan, AProcessThatCameLaterIsNotKilledAgain) {
  const std::vector<FaultSpec> faults = {{"w1", 3, "kill", 0},
                                         {"w1", 3, "nan"}};

  EXPECT_TRUE(FaultPlan(faults, "w1", true).At(3).kill);
  EXPECT_FALSE(FaultPlan(faults, "w1", false).At(3).kill);
  EXPECT_TRUE(FaultPlan(faults, "w1", false).At(3).nan);
}

}  // namespace
}  // namespace paceline
