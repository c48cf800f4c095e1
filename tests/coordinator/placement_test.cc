#include "coordinator/place/placement.h"

#include <set>

#include "coordinator/jobs/job_text.h"
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr JobId kNobody{};

// Live workers a, b and c, with ids 1 to 3.
class PlacementTest : public testing::Test {
 protected:
  PlacementTest() {
    for (int i = 0; i < 3; ++i) {
      Member& member = members_[i];
      member.id = WorkerId{i + 1};
      member.registration = WorkerNamed(std::string(1, 'a' + i), 100 + i);
      member.state = MemberState::kLive;
      candidates_.push_back({&member, kNobody});
    }
  }

  PlacementVerdict Decide(const JobSpec& spec) const {
    return DecidePlacement(spec, *Describe(spec), candidates_, measured_);
  }
  void Refuse(const std::string& from, const std::string& to) {
    measured_.Put(LinkMeasurement{.from = from,
                                  .to = to,
                                  .bytes_per_second = kRefusedBytesPerSecond,
                                  .error = "cannot dial " + to + " (:9): no"});
  }

  Member members_[3];
  std::vector<Candidate> candidates_;
  StoredMeasurements measured_;
};

JobSpec OnCAndA() {
  JobSpec spec = SpecOf(2);
  spec.pipeline.cuts = {2};
  spec.pipeline.workers = {"c", "a"};
  return spec;
}

TEST_F(PlacementTest, TakesTheWorkersThatTheJobNames) {
  const PlacementVerdict verdict = Decide(OnCAndA());

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  ASSERT_EQ(verdict.plan->stages.size(), 2u);
  EXPECT_EQ(verdict.plan->stages[0].worker, WorkerId{3});
  EXPECT_EQ(verdict.plan->stages[1].worker, WorkerId{1});
}

// A script as a worker has described it.
JobSpec ScriptSpec(int stages) {
  JobSpec spec = SpecOf(stages);
  spec.model = ModelSpec();
  spec.model.name = "script";
  spec.model.file = "/srv/net.pt";
  spec.data = DefaultDataSpec("synthetic");
  spec.data.shape = {4};
  spec.data.classes = 2;
  spec.model.script.sha256 = "hash";
  spec.model.script.input = {4};
  for (int i = 0; i < 2; ++i) {
    ScriptLayer layer;
    layer.name = absl::StrCat(i);
    layer.output = {2};
    spec.model.script.layers.push_back(layer);
  }
  return spec;
}

TEST_F(PlacementTest, GivesNoScriptToAWorkerThatForbidsThem) {
  members_[0].registration.set_no_scripts(true);
  members_[2].registration.set_no_scripts(true);

  const PlacementVerdict some = Decide(ScriptSpec(2));
  ASSERT_TRUE(some.plan.has_value()) << some.why;
  for (const StageOfPlan& stage : some.plan->stages) {
    EXPECT_EQ(stage.worker, WorkerId{2});
  }
  EXPECT_TRUE(Decide(SpecOf(2)).plan.has_value()) << "no script";
  JobSpec group = ScriptSpec(1);
  group.aggregation.mode = "rolling";
  const PlacementVerdict members = Decide(group);
  ASSERT_TRUE(members.plan.has_value()) << members.why;
  EXPECT_EQ(members.plan->stages.size(), 1u);

  members_[1].registration.set_no_scripts(true);
  for (const JobSpec& spec : {ScriptSpec(2), group}) {
    const PlacementVerdict none = Decide(spec);
    EXPECT_FALSE(none.plan.has_value());
    EXPECT_TRUE(absl::IsFailedPrecondition(none.impossible));
    EXPECT_THAT(none.why, HasSubstr("--no-scripts"));
  }
}

// Stages of one block each between embedding and head, on a, b and c.
JobSpec ToleratesLoss() {
  JobSpec spec = SpecOf(3);
  spec.kind = kInferKind;
  spec.model = DefaultModel("vit");
  spec.model.depth = 2;
  spec.data = DefaultDataSpec("synthetic");
  spec.infer.tolerate = "skip";
  spec.pipeline.cuts = {1, 3};
  spec.pipeline.workers = {"a", "b", "c"};
  return spec;
}

std::optional<JobSpec> WithoutWorker(const JobSpec& spec,
                                     const std::string& lost) {
  return WithoutLostStages(
      spec, *Describe(spec),
      [&lost](const std::string& name) { return name != lost; });
}

TEST_F(PlacementTest, GoesOnWithoutTheBlocksOfALostStage) {
  const std::optional<JobSpec> rest = WithoutWorker(ToleratesLoss(), "b");

  ASSERT_TRUE(rest.has_value());
  ASSERT_EQ(rest->faults.size(), 1u);
  EXPECT_EQ(rest->faults[0].block, 0);
  candidates_.erase(candidates_.begin() + 1);
  const PlacementVerdict verdict = Decide(*rest);
  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  ASSERT_EQ(verdict.plan->stages.size(), 2u);
  EXPECT_EQ(verdict.plan->stages[0].layers, (LayerRange{0, 3}));
  EXPECT_EQ(verdict.plan->stages[1].worker, WorkerId{3});
}

TEST_F(PlacementTest, KeepsStagesThatNothingCanDoWithout) {
  const JobSpec spec = ToleratesLoss();
  JobSpec half = spec;
  half.pipeline.cuts = {2, 3};  // b has the second half of a block
  JobSpec strict = spec;
  strict.infer.tolerate = "none";
  JobSpec training = spec;
  training.kind = kTrainKind;

  EXPECT_FALSE(WithoutWorker(spec, "a").has_value());
  EXPECT_FALSE(WithoutWorker(spec, "c").has_value());
  EXPECT_FALSE(WithoutWorker(spec, "nobody").has_value());
  for (const JobSpec& other : {half, strict, training}) {
    EXPECT_FALSE(WithoutWorker(other, "b").has_value());
  }
}

TEST_F(PlacementTest, PutsTheFirstStageWhereTheDataIs) {
  for (int with_data = 0; with_data < 3; ++with_data) {
    for (int i = 0; i < 3; ++i) candidates_[i].no_data = i != with_data;

    const PlacementVerdict verdict = Decide(SpecOf(3));

    ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
    EXPECT_EQ(verdict.plan->stages[0].worker, WorkerId{with_data + 1});
    std::set<WorkerId> workers;
    for (const StageOfPlan& stage : verdict.plan->stages) {
      workers.insert(stage.worker);
    }
    EXPECT_EQ(workers.size(), 3u) << "the others hold the other stages";
  }
  candidates_[2].no_data = true;
  EXPECT_EQ(Decide(SpecOf(3)).why, "waits for a worker that has the data");
}

TEST_F(PlacementTest, WaitsForTheDataWhereTheJobNamesItsWorkers) {
  candidates_[2].no_data = true;

  EXPECT_THAT(Decide(OnCAndA()).why, HasSubstr("waits for the data"));
}

TEST_F(PlacementTest, NamesAllOfItsWorkersThatAreNotThereAndEachOnce) {
  JobSpec spec = OnCAndA();
  spec.pipeline.workers = {"y", "a", "x", "y"};

  EXPECT_EQ(Decide(spec).why,
            "waits for workers: pipeline.workers names x, y, which are not "
            "attached");
  candidates_[0].drained = true;
  EXPECT_THAT(Decide(spec).why, HasSubstr("names a, which is drained"));
}

TEST_F(PlacementTest, AWorkerThatCannotBeUsedIsAttachedAllTheSame) {
  candidates_[2].unfit = true;

  EXPECT_THAT(Decide(OnCAndA()).why,
              AllOf(HasSubstr("names c, which is attached and"),
                    Not(HasSubstr("not attached"))));
  for (Candidate& each : candidates_) each.unfit = true;
  EXPECT_THAT(Decide(SpecOf(1)).why, Not(HasSubstr("drained")));
}

TEST_F(PlacementTest, WaitsForALinkThatTheWorkNeeds) {
  JobSpec spec = OnCAndA();
  Refuse("a", "b");
  EXPECT_TRUE(Decide(spec).plan.has_value()) << "b has no part in it";

  Refuse("a", "c");
  EXPECT_EQ(Decide(spec).why,
            "waits for a link: worker a cannot dial c (:9): no")
      << "gradients go back";
  spec.kind = kInferKind;
  spec.train = ForInference(spec.infer, 1);
  EXPECT_TRUE(Decide(spec).plan.has_value()) << "nothing goes back";
  Refuse("c", "a");
  EXPECT_THAT(Decide(spec).why, HasSubstr("worker c cannot dial a"));
}

TEST_F(PlacementTest, OnlyTheGateDialsTheFirstStage) {
  JobSpec spec = SpecOf(3);
  spec.pipeline.cuts = {1, 2};
  spec.pipeline.workers = {"a", "b", "c"};
  Refuse("a", "c");
  EXPECT_TRUE(Decide(spec).plan.has_value()) << "nobody dials the last stage";

  Refuse("c", "a");
  EXPECT_THAT(Decide(spec).why, HasSubstr("worker c cannot dial a"));
}

TEST_F(PlacementTest, StagesThatShareAWeightDialOneAnother) {
  JobSpec spec = SpecOf(3);
  spec.model = DefaultModel("gpt");
  spec.data = DefaultDataSpec("text");
  const int layers = static_cast<int>(Describe(spec)->layers.size());
  spec.pipeline.cuts = {1, layers - 1};
  spec.pipeline.workers = {"a", "b", "c"};
  ASSERT_TRUE(Decide(spec).plan.has_value()) << Decide(spec).why;

  Refuse("a", "c");

  EXPECT_THAT(Decide(spec).why, HasSubstr("worker a cannot dial c"));
}

TEST_F(PlacementTest, PlansWithoutAWorkerThatNobodyCanDial) {
  for (const char* const policy : {"optimal", "equal", "min-cut"}) {
    measured_ = {};
    JobSpec spec = SpecOf(2);
    spec.pipeline.policy = policy;
    if (policy == std::string("equal")) spec.pipeline.cuts = {2};
    for (const char* const other : {"a", "c"}) Refuse(other, "b");

    const PlacementVerdict verdict = Decide(spec);

    ASSERT_TRUE(verdict.plan.has_value()) << policy << ": " << verdict.why;
    for (const StageOfPlan& stage : verdict.plan->stages) {
      EXPECT_NE(stage.worker, WorkerId{2}) << policy;
    }
  }
  Refuse("a", "c");
  Refuse("c", "a");
  EXPECT_THAT(Decide(SpecOf(2)).why, HasSubstr("waits for a link: worker "));
}

TEST_F(PlacementTest, PlacesNoNeighboursAcrossALinkThatNobodyCanDial) {
  JobSpec spec = SpecOf(2);
  spec.pipeline.policy = "optimal";
  for (const char* const other : {"b", "c"}) Refuse(other, "a");

  const PlacementVerdict verdict = Decide(spec);

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  for (const StageOfPlan& stage : verdict.plan->stages) {
    EXPECT_NE(stage.worker, WorkerId{1});
  }
}

TEST_F(PlacementTest, WaitsForANamedWorkerThatIsBusyThoughOthersAreFree) {
  candidates_[2].job = JobId{7};

  const PlacementVerdict verdict = Decide(OnCAndA());

  EXPECT_FALSE(verdict.plan.has_value());
  EXPECT_THAT(verdict.why, HasSubstr("waits for job 7"));
  EXPECT_THAT(verdict.waits_for, testing::ElementsAre(JobId{7}));
}

TEST_F(PlacementTest, OneWorkerMayHoldSeveralNamedStages) {
  JobSpec spec = OnCAndA();
  spec.pipeline.cuts = {1, 2};
  spec.pipeline.stages = 3;
  spec.pipeline.workers = {"b", "b", "a"};
  candidates_[2].job = JobId{7};

  const PlacementVerdict verdict = Decide(spec);

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  EXPECT_EQ(verdict.plan->stages[1].worker, WorkerId{2});
}

TEST_F(PlacementTest, OnlyBf16JobsAskForBf16Instructions) {
  for (Member& member : members_) {
    member.registration.set_cpu_capability("avx512_bf16");
  }
  JobSpec spec = SpecOf(2);

  EXPECT_EQ(Decide(spec).cpu_capability, "avx512");
  spec.precision = "bf16";
  EXPECT_EQ(Decide(spec).cpu_capability, "avx512_bf16");
}

TEST_F(PlacementTest, SaysWhereBf16CostsTimeInsteadOfSavingIt) {
  members_[0].registration.set_cpu_capability("avx512_bf16");
  members_[1].registration.set_cpu_capability("avx2");
  members_[2].registration.set_cpu_capability("avx512_bf16");
  JobSpec spec = OnCAndA();
  const auto notes = [&] {
    const PlacementVerdict verdict = Decide(spec);
    EXPECT_TRUE(verdict.plan.has_value()) << verdict.why;
    return PlacementNotes(spec, &*verdict.plan, candidates_);
  };
  const auto slow = HasSubstr("precision bf16 without bf16 instructions");

  EXPECT_THAT(notes(), Not(Contains(slow)));
  spec.precision = "bf16";
  EXPECT_THAT(notes(), Not(Contains(slow)));
  spec.pipeline.workers = {"c", "b"};
  EXPECT_THAT(notes(), Contains(AllOf(slow, HasSubstr("(b cannot do it)"))));
  spec.pipeline.workers = {"c", "a"};
  spec.cpu_capability = "avx512";
  EXPECT_THAT(notes(), Contains(AllOf(slow, HasSubstr("is avx512"))));
}

TEST_F(PlacementTest, SaysWhatMoreThreadsGaveWhereThatWasMeasured) {
  const auto rate = [](int64_t threads) { return 12.5 * threads; };

  EXPECT_THAT(ThreadNote(SpecOf(2), /*plan=*/nullptr, candidates_, rate),
              HasSubstr("--set threads=4 gives 50 samples/s as measured (with "
                        "1: 12.5), and"));
}

TEST_F(PlacementTest, SaysWhatBecomesOfABatchThatItsMicroBatchesDoNotDivide) {
  JobSpec spec = SpecOf(2);
  const auto notes = [&] {
    return PlacementNotes(spec, /*plan=*/nullptr, candidates_);
  };
  const auto uneven = HasSubstr("last micro-batch of a batch has 2 of 50");
  spec.train.batch = 50;
  spec.train.micro_batch = 10;
  EXPECT_THAT(notes(), Not(Tells("last micro-batch")));

  spec.train.micro_batch = 12;
  EXPECT_THAT(notes(),
              Contains(AllOf(uneven, HasSubstr("gradient is the same"))));
  spec.pipeline.schedule = "pipedream";
  EXPECT_THAT(notes(), Contains(AllOf(uneven, HasSubstr("each is an update"))));
  spec.kind = kInferKind;
  EXPECT_THAT(notes(), Not(Contains(uneven)));
}

TEST_F(PlacementTest, SaysThatABatchIsLargerThanTheDataAndAWarmUpThanTheJob) {
  JobSpec spec = SpecOf(2);
  const auto notes = [&] {
    return PlacementNotes(spec, /*plan=*/nullptr, candidates_);
  };
  spec.data.name = "synthetic";
  spec.data.train_samples = 30;
  spec.train.batch = 30;
  spec.train.micro_batch = 10;
  spec.train.steps = 5;
  EXPECT_THAT(notes(), Not(Tells("an epoch is one step")));

  spec.train.batch = 40;
  spec.train.learning_rate.warmup_steps = 5;
  EXPECT_THAT(notes(), Tells("train.batch is 40, and the data has 30 samples"));
  EXPECT_THAT(notes(), Tells("warmup_steps is 5, and the job has 5 steps"));
  spec.kind = kInferKind;
  EXPECT_THAT(notes(), Not(Tells("an epoch is one step")));
}

// A mesh of workers a, b and c.
class DealingNoteTest : public testing::Test {
 protected:
  DealingNoteTest() {
    for (const char* name : {"a", "b", "c"}) mesh_.Attach(name, name[0]);
  }

  static JobSpec Interleaved(int stages) {
    JobSpec spec = SpecOf(stages);
    spec.model.hidden = {16, 16, 16, 16, 16, 16, 16};  // 8 layers
    spec.pipeline.schedule = "interleaved-1f1b";
    spec.train.batch = 48;
    spec.train.micro_batch = 8;
    return spec;
  }
  const std::vector<std::string>& NotesOf(const JobSpec& spec) {
    EXPECT_NE(mesh_.Submit(spec), JobId{0}) << mesh_.submit_error();
    return mesh_.notes();
  }

  Mesh mesh_;
};

TEST_F(DealingNoteTest, SubmitSaysWhoIsLeftOutAndHowToHaveAllWork) {
  EXPECT_THAT(NotesOf(Interleaved(4)),
              Tells("worker c gets no stage",
                    "4 stages do not divide so among 3", "pipeline.stages=6"));
}

TEST_F(DealingNoteTest, ChosenStagesAreLeftToLayersAndMicroBatches) {
  JobSpec spec = Interleaved(0);
  spec.train.batch = 32;

  EXPECT_THAT(NotesOf(spec),
              Tells("worker c gets no stage", "micro-batches of a batch",
                    "4) to be a multiple"));
}

TEST_F(DealingNoteTest, AsksForNoMoreStagesThanThereAreLayers) {
  JobSpec spec = Interleaved(4);
  spec.model.hidden = {16, 16, 16};  // 4 layers

  EXPECT_THAT(NotesOf(spec), Contains(AllOf(HasSubstr("worker c gets no stage"),
                                            HasSubstr("4 layers are too few"),
                                            Not(HasSubstr("--set")))));
}

TEST_F(DealingNoteTest, SaysNothingWhereAllWorkOrOfOtherSchedules) {
  for (const JobSpec& spec : {Interleaved(6), SpecOf(2)}) {
    EXPECT_THAT(NotesOf(spec), Not(Tells("gets no stage")));
  }
}

// One of two has next to no memory; all are idle, and nothing is measured.
TEST_F(PlacementTest, WaitsForNoProfileThatNobodyTakes) {
  candidates_.pop_back();
  members_[0].registration.set_memory_bytes(24);
  for (const char* policy : {"optimal", "equal", "min-cut"}) {
    for (const int stages : {0, 2}) {
      JobSpec spec = SpecOf(stages);
      spec.pipeline.policy = policy;

      const PlacementVerdict verdict = Decide(spec);

      ASSERT_TRUE(verdict.plan.has_value()) << policy << ": " << verdict.why;
      for (const StageOfPlan& stage : verdict.plan->stages) {
        EXPECT_EQ(stage.worker, WorkerId{2});
      }
    }
  }

  candidates_[1].no_data = true;
  const PlacementVerdict verdict = Decide(SpecOf(1));
  EXPECT_FALSE(verdict.plan.has_value());
  EXPECT_THAT(verdict.why,
              AllOf(HasSubstr("waits for other workers"), HasSubstr("memory"),
                    Not(HasSubstr("profile"))));
  candidates_[1].measuring = true;
  EXPECT_THAT(Decide(SpecOf(1)).why, HasSubstr("profile that is being taken"));
}

}  // namespace
}  // namespace paceline
