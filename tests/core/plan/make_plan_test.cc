#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/model/catalog.h"
#include "core/plan/plan.h"
#include "core/plan/search/policy.h"
#include "core/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"
#include "tests/support/well_said.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

JobSpec Job(int stages) {
  JobSpec spec;
  spec.name = "job";
  spec.model.name = "small";
  spec.train.batch = 64;
  spec.train.micro_batch = 8;
  spec.pipeline.stages = stages;
  spec.pipeline.schedule = "1f1b";
  spec.pipeline.policy = "equal";
  return spec;
}

// Named a, b, ... with ids 10, 11, ..., memory not known.
std::vector<PlannerWorker> Workers(int count) {
  std::vector<PlannerWorker> workers;
  for (int i = 0; i < count; ++i) {
    workers.push_back({WorkerId{10 + i}, std::string(1, 'a' + i), 0, ""});
  }
  return workers;
}

std::vector<int64_t> Holders(const Plan& plan) {
  std::vector<int64_t> holders;
  for (const StageOfPlan& stage : plan.stages) {
    holders.push_back(stage.worker.value);
  }
  return holders;
}

TEST(MakePlan, GivesEachStageAWorkerInTheOrderGiven) {
  std::vector<PlannerWorker> workers = Workers(3);
  std::swap(workers[0], workers[2]);

  const auto plan = Value(MakePlan(Job(3), SmallModel(7), workers));

  EXPECT_THAT(Holders(plan), ElementsAre(12, 11, 10));
  EXPECT_EQ(plan.stages[0].layers, (LayerRange{0, 3}));
  EXPECT_EQ(plan.stages[1].layers, (LayerRange{3, 5}));
  EXPECT_EQ(plan.stages[2].layers, (LayerRange{5, 7}));
  EXPECT_THAT(plan.why, StartsWith("equal ("));
  EXPECT_THAT(plan.why, HasSubstr("): 7 layers in 3 stages (3+2+2) on 3 "
                                  "workers; c holds stage 0 ("));
}

TEST(MakePlan, PutsReasonsTogetherWithoutDoubledPointsAndCountsRight) {
  for (const char* const policy : {"equal", "optimal"}) {
    for (const int stages : {1, 2, 3}) {
      JobSpec spec = Job(stages);
      spec.pipeline.policy = policy;
      const auto plan = Value(MakePlan(spec, SmallModel(4), Workers(2)));

      EXPECT_EQ(IllSaid(plan.why), "") << plan.why;
    }
  }
}

TEST(MakePlan, LeavesWorkersBeyondTheStagesFree) {
  const auto plan = Value(MakePlan(Job(2), SmallModel(4), Workers(5)));

  EXPECT_THAT(Holders(plan), ElementsAre(10, 11));
  EXPECT_THAT(plan.why, AllOf(HasSubstr("on 2 workers"),
                              Not(HasSubstr("fewer workers"))));
}

TEST(MakePlan, PutsNeighbouringStagesTogetherWhenWorkersAreFew) {
  const auto plan = Value(MakePlan(Job(5), SmallModel(5), Workers(3)));

  EXPECT_THAT(Holders(plan), ElementsAre(10, 10, 11, 11, 12));
  EXPECT_THAT(
      plan.why,
      AllOf(HasSubstr("fewer workers than stages: a holds stages 0..1"),
            HasSubstr("b holds stages 2..3"), HasSubstr("c holds stage 4")));
}

// A layer takes so many seconds on each worker, links are fast.
Measurements Measured(const JobSpec& spec, const ModelDescription& model,
                      const std::vector<PlannerWorker>& workers,
                      const std::vector<double>& layer_seconds) {
  std::map<std::string, LayerMeasurement> layers;
  for (size_t i = 0; i < workers.size(); ++i) {
    layers[workers[i].name].forward.wall = layer_seconds[i];
  }
  return MeasuredOn(spec, model, layers);
}

int LayersOn(const Plan& plan, int64_t worker) {
  int layers = 0;
  for (const StageOfPlan& stage : plan.stages) {
    if (stage.worker.value != worker) continue;
    layers += stage.layers.last - stage.layers.first;
  }
  return layers;
}

TEST(MakePlan, GivesTheFasterWorkerMoreWhereStagesShareWorkers) {
  for (const std::string schedule : {"1f1b", "gpipe", "zero-bubble"}) {
    JobSpec spec = Job(6);
    spec.pipeline.policy = "optimal";
    spec.pipeline.schedule = schedule;
    const ModelDescription model = SmallModel(12);
    const std::vector<PlannerWorker> workers = Workers(2);

    const auto plan = Value(MakePlan(
        spec, model, workers, Measured(spec, model, workers, {0.03, 0.01})));

    ASSERT_EQ(plan.stages.size(), 6u);
    EXPECT_EQ(LayersOn(plan, 10), 3) << plan.why;
    EXPECT_EQ(LayersOn(plan, 11), 9);
    std::vector<int64_t> holders = Holders(plan);
    holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
    EXPECT_EQ(holders.size(), 2u) << "neighbouring stages share a worker";
    EXPECT_THAT(plan.why, AllOf(StartsWith("optimal ("),
                                HasSubstr("fewer workers than stages:")));
  }
}

TEST(MakePlan, UsesAllWorkersWhereStagesShareThem) {
  JobSpec spec = Job(6);
  spec.pipeline.policy = "optimal";
  const ModelDescription model = SmallModel(12);
  const std::vector<PlannerWorker> workers = Workers(4);

  const auto plan =
      Value(MakePlan(spec, model, workers,
                     Measured(spec, model, workers, {0.01, 0.01, 0.01, 0.01})));

  for (const PlannerWorker& worker : workers) {
    EXPECT_EQ(LayersOn(plan, worker.worker.value), 3) << plan.why;
  }
  EXPECT_EQ(plan.stages.size(), 6u);
}

TEST(MakePlan, CutsForInferenceByForwardSecondsWhereStagesShareWorkers) {
  JobSpec spec = Job(6);
  spec.kind = kInferKind;
  spec.infer.samples = 96;
  spec.infer.micro_batch = spec.train.micro_batch;
  spec.pipeline.policy = "optimal";
  const ModelDescription model = SmallModel(12);
  const std::vector<PlannerWorker> workers = Workers(4);
  Measurements measurements =
      Measured(spec, model, workers, {0.01, 0.01, 0.01, 0.01});
  for (auto& [key, profile] : measurements.profiles) {
    profile.layers[0].forward.wall = 0.04;  // as long as four others
  }

  const auto plan = Value(MakePlan(spec, model, workers, measurements));

  ASSERT_EQ(plan.stages.size(), 6u);
  // 15 layers' time on four workers: nobody takes longer than the first layer.
  EXPECT_EQ(plan.stages[0].layers, (LayerRange{0, 1})) << plan.why;
  EXPECT_NE(plan.stages[1].worker, plan.stages[0].worker);
  for (const PlannerWorker& worker : workers) {
    EXPECT_LE(LayersOn(plan, worker.worker.value), 4) << plan.why;
  }
}

TEST(MakePlan, DealsStagesOutToTheFastestWorkers) {
  JobSpec spec = Job(4);
  spec.pipeline.schedule = "interleaved-1f1b";
  const ModelDescription model = SmallModel(12);
  const std::vector<PlannerWorker> workers = Workers(3);

  const auto plan =
      Value(MakePlan(spec, model, workers,
                     Measured(spec, model, workers, {0.03, 0.01, 0.01})));

  EXPECT_EQ(LayersOn(plan, 10), 0) << plan.why;
  EXPECT_EQ(LayersOn(plan, 11), 6) << plan.why;
  EXPECT_EQ(LayersOn(plan, 12), 6) << plan.why;
}

TEST(MakePlan, ChoosesAmongTheFastestOfManyWorkers) {
  JobSpec spec = Job(2);
  spec.pipeline.policy = "optimal";
  const ModelDescription model = SmallModel(4);
  const std::vector<PlannerWorker> workers = Workers(70);
  std::vector<double> seconds(70, 0.02);
  seconds[0] = seconds[69] = 0.01;

  const auto plan = Value(
      MakePlan(spec, model, workers, Measured(spec, model, workers, seconds)));

  EXPECT_THAT(Holders(plan), UnorderedElementsAre(10, 79)) << plan.why;
  EXPECT_THAT(plan.why, HasSubstr("fastest 64 of 70"));
}

TEST(MakePlan, FitsWhereEqualStagesDoWhenWorkersAreFew) {
  const ModelDescription model = SmallModel(8);
  int by_policy = 0;
  int by_memory = 0;
  for (int64_t memory = 1000; memory < 20000; memory += 50) {
    JobSpec spec = Job(6);
    std::vector<PlannerWorker> workers = Workers(2);
    for (PlannerWorker& worker : workers) worker.memory_bytes = memory;
    const Measurements measurements =
        Measured(spec, model, workers, {0.01, 0.03});
    const bool fits = MakePlan(spec, model, workers, measurements).ok();
    spec.pipeline.policy = "optimal";

    const auto plan = MakePlan(spec, model, workers, measurements);

    EXPECT_TRUE(plan.ok() || !fits) << memory << ": " << plan.status();
    if (!plan.ok()) continue;
    by_policy += plan->why.starts_with("optimal (");
    by_memory += plan->why.starts_with("equal");
  }
  EXPECT_GT(by_policy, 0);
  EXPECT_GT(by_memory, 0);
}

TEST(MakePlan, TakesTheCutsOfTheJob) {
  JobSpec spec = Job(1);
  spec.pipeline.cuts = {1};

  const auto plan = Value(MakePlan(spec, SmallModel(4), Workers(2)));

  ASSERT_EQ(plan.stages.size(), 2);
  EXPECT_EQ(plan.stages[0].layers, (LayerRange{0, 1}));
  EXPECT_EQ(plan.stages[1].layers, (LayerRange{1, 4}));
  EXPECT_THAT(plan.why, StartsWith("cuts: 4 layers in 2 stages (1+3)"));
}

TEST(MakePlan, PutsStagesOnTheWorkersThatTheJobNames) {
  JobSpec spec = Job(3);
  spec.pipeline.cuts = {2, 5};
  spec.pipeline.workers = {"c", "a", "c"};

  const auto plan = Value(MakePlan(spec, SmallModel(7), Workers(4)));

  EXPECT_THAT(Holders(plan), ElementsAre(12, 10, 12));
  EXPECT_THAT(plan.why, HasSubstr("c holds stage"));
}

struct Refusal {
  std::string says;
  std::string changes;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  int workers = 2;
};

TEST(MakePlan, RefusesWhatCannotBePlannedAndSaysWhy) {
  constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  const Refusal refusals[] = {
      {"5 stages, but only 4 layers", "pipeline.stages=5"},
      {"4 layers", "pipeline.stages=5", absl::StatusCode::kInvalidArgument, 0},
      {"worker z", "pipeline.cuts=2; pipeline.workers=a,z", kPrecondition},
      {"1 worker for 2 stages", "pipeline.cuts=2; pipeline.workers=a"},
      {"cut at layer 9", "pipeline.cuts=9"},
      {"'zigzag'", "pipeline.schedule=zigzag"},
      {"batch", "train.batch=0"},
      {"batch", "train.micro_batch=0"},
      {"batch", "train.batch=4611686018427387904; train.micro_batch=1"},
      {"batch", "train.batch=1073741824; train.micro_batch=1"},
      {"no workers", "", kPrecondition, 0}};
  for (const Refusal& refusal : refusals) {
    JobSpec spec = Job(2);
    ChangeJob(spec, refusal.changes);

    ExpectError(
        MakePlan(spec, SmallModel(4), Workers(refusal.workers)).status(),
        refusal.code, HasSubstr(refusal.says));
  }
}

// Counts the bytes that worker `index` needs for its stages, by the public
// pieces.
int64_t Need(const JobSpec& spec, const ModelDescription& model,
             const Plan& plan, const std::vector<int>& worker_of, int index) {
  const auto schedule =
      MakeSchedule({.name = spec.pipeline.schedule,
                    .stages = static_cast<int>(plan.stages.size()),
                    .micro_batches = 8,
                    .training = true,
                    .worker_of = worker_of});
  const auto bounds = CheckSchedule(*schedule);
  std::vector<LayerRange> ranges;
  std::vector<StageKeeps> kept;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    if (worker_of[stage] != index) continue;
    ranges.push_back(plan.stages[stage].layers);
    kept.push_back({bounds->kept_micro_batches[stage]});
  }
  return EstimateBytes(model, spec.train, ranges, kept);
}

TEST(MakePlan, MemoryThatJustSuffices) {
  const JobSpec spec = Job(3);
  const ModelDescription model = SmallModel(3);
  std::vector<PlannerWorker> workers = Workers(2);
  const auto unbounded = Value(MakePlan(spec, model, workers));

  const int64_t need = Need(spec, model, unbounded, {0, 0, 1}, 1);

  workers[1].memory_bytes = need;
  EXPECT_TRUE(MakePlan(spec, model, workers).ok());

  workers[1].memory_bytes = need - 1;
  const auto without = Value(MakePlan(spec, model, workers));
  EXPECT_THAT(Holders(without), ElementsAre(10, 10, 10));
  EXPECT_THAT(
      without.why,
      AllOf(HasSubstr("planned without b: worker b has "), HasSubstr("stage 2"),
            HasSubstr(absl::StrCat("(", need - 1, " bytes)")),
            HasSubstr(absl::StrCat("(", need, " bytes)"))));

  workers[0].memory_bytes = 1;
  ExpectError(MakePlan(spec, model, workers).status(),
              absl::StatusCode::kResourceExhausted,
              StartsWith("worker a has 1 B"));
}

TEST(MakePlan, SaysMemoryInUnitsForPeople) {
  ModelDescription model = SmallModel(2);
  model.layers[0].parameter_bytes = int64_t{1} << 30;
  std::vector<PlannerWorker> workers = Workers(1);
  workers[0].memory_bytes = int64_t{512} << 20;

  ExpectError(MakePlan(Job(2), model, workers).status(),
              absl::StatusCode::kResourceExhausted,
              AllOf(StartsWith("worker a has 512.0 MiB"),
                    HasSubstr("its stages 0..1 would need 2.0 GiB")));
}

// gpipe keeps 8 micro-batches on each stage, 1f1b at most 2 here.
TEST(MakePlan, MemoryFollowsTheSchedule) {
  JobSpec spec = Job(2);
  ModelDescription model = SmallModel(2);
  for (Layer& layer : model.layers) layer.activation_bytes = 1000;
  std::vector<PlannerWorker> workers = Workers(2);
  for (PlannerWorker& worker : workers) worker.memory_bytes = 8 * 3000;

  EXPECT_TRUE(MakePlan(spec, model, workers).ok());

  spec.pipeline.schedule = "gpipe";
  ExpectError(MakePlan(spec, model, workers).status(),
              absl::StatusCode::kResourceExhausted, HasSubstr("worker a"));
}

// A batch of 20 in micro-batches of 8 has three, the last one shorter.
TEST(MakePlan, CountsTheLastShorterMicroBatch) {
  JobSpec spec = Job(1);
  spec.pipeline.schedule = "gpipe";
  spec.train.batch = 20;
  const ModelDescription model = SmallModel(1);
  std::vector<PlannerWorker> workers = Workers(1);
  const int64_t need = EstimateBytes(model, spec.train, {{0, 1}}, {{3}});

  workers[0].memory_bytes = need;
  EXPECT_TRUE(MakePlan(spec, model, workers).ok());
  workers[0].memory_bytes = need - 1;
  EXPECT_FALSE(MakePlan(spec, model, workers).ok());
}

JobSpec InferJob(int stages) {
  JobSpec spec = Job(stages);
  spec.kind = kInferKind;
  spec.infer.micro_batch = 8;
  spec.train = ForInference(spec.infer, 1);
  spec.pipeline.policy = "optimal";
  return spec;
}

std::vector<double> Shares(const Plan& plan) {
  std::vector<double> shares;
  for (const StageOfPlan& stage : plan.stages) shares.push_back(stage.share);
  return shares;
}

TEST(MakePlan, PutsAStageOfInferenceOnSeveralWorkersThatTheJobNames) {
  JobSpec spec = InferJob(0);
  spec.pipeline.cuts = {3};
  spec.pipeline.workers = {"c", "a", "b"};
  spec.pipeline.replicas = {1, 2};
  spec.pipeline.shares = {1, 1, 3};

  const auto plan = Value(MakePlan(spec, SmallModel(4), Workers(3)));

  EXPECT_THAT(Holders(plan), ElementsAre(12, 10, 11));
  EXPECT_THAT(StageNumbers(plan.stages), ElementsAre(0, 1, 1));
  EXPECT_THAT(Shares(plan), ElementsAre(1, 1, 3));
  EXPECT_THAT(RoutesOf(plan.stages)[1].turns(), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(plan.why, HasSubstr("4 layers in 2 stages (3+1) on 3 workers"));
  EXPECT_THAT(plan.why, HasSubstr("b holds stage 1 ("));
  EXPECT_THAT(plan.why, HasSubstr(", 75.0 % of it)"));
}

TEST(MakePlan, ReplicasThatTheJobNamesShareInferenceBySpeed) {
  JobSpec spec = InferJob(0);
  spec.pipeline.cuts = {3};
  spec.pipeline.workers = {"c", "a", "b"};
  spec.pipeline.replicas = {1, 2};
  const ModelDescription model = SmallModel(4);
  std::vector<PlannerWorker> workers = Workers(3);
  const Measurements measured =
      Measured(spec, model, workers, {0.01, 0.01, 0.01});

  EXPECT_THAT(Shares(Value(MakePlan(spec, model, workers, measured))),
              ElementsAre(1, 0.5, 0.5));
  workers[1].slowness = 4;  // "b"
  EXPECT_THAT(Shares(Value(MakePlan(spec, model, workers, measured))),
              ElementsAre(1, DoubleNear(0.8, 0.01), DoubleNear(0.2, 0.01)));
}

// One layer cannot be cut: a second worker helps only as its replica.
TEST(MakePlan, ReplicatesInferenceWhereThePolicyChoosesTheStages) {
  JobSpec spec = InferJob(0);
  const ModelDescription model = SmallModel(1);
  const std::vector<PlannerWorker> workers = Workers(2);
  const Measurements measured = Measured(spec, model, workers, {0.01, 0.02});
  const auto both = Value(MakePlan(spec, model, workers, measured));

  EXPECT_THAT(StageNumbers(both.stages), ElementsAre(0, 0)) << both.why;
  ASSERT_THAT(both.stages, SizeIs(2));
  EXPECT_NEAR(both.stages[0].share, 2.0 / 3, 0.01);

  const auto stages = [&] {
    return MakePlan(spec, model, workers, measured)->stages;
  };
  spec.pipeline.replicate = "never";
  EXPECT_THAT(stages(), SizeIs(1));
  spec.pipeline.stages = 1;
  spec.pipeline.replicate = "auto";
  EXPECT_THAT(stages(), SizeIs(1));
  spec.pipeline.replicate = "allowed";
  EXPECT_THAT(stages(), SizeIs(2));
}

// Four micro-batches; the policy is the default one.
JobSpec Scheduled(const std::string& schedule, int stages) {
  JobSpec spec = Job(stages);
  spec.train.batch = 32;
  spec.pipeline.schedule = schedule;
  spec.pipeline.policy = JobSpec().pipeline.policy;
  return spec;
}

TEST(MakePlan, ReplicatesTrainingOnlyWhereTheJobAllowsItAndTheScheduleCan) {
  JobSpec spec = Scheduled("1f1b", 0);
  const ModelDescription model = SmallModel(1);
  const std::vector<PlannerWorker> workers = Workers(2);
  const Measurements measured = Measured(spec, model, workers, {0.1, 0.1});
  const auto stages = [&] {
    return MakePlan(spec, model, workers, measured)->stages;
  };

  EXPECT_THAT(stages(), SizeIs(1));
  spec.pipeline.replicate = "allowed";
  EXPECT_THAT(stages(), SizeIs(2));
  spec.pipeline.schedule = "zero-bubble";
  EXPECT_THAT(stages(), SizeIs(1));
}

TEST(MakePlan, DealsInterleavedStagesOutInTurn) {
  const ModelDescription model = SmallModel(8);

  const auto plan =
      Value(MakePlan(Scheduled("interleaved-1f1b", 8), model, Workers(5)));

  ASSERT_EQ(plan.stages.size(), 8u);
  for (int stage = 0; stage < 8; ++stage) {
    EXPECT_EQ(plan.stages[stage].worker, WorkerId{10 + stage % 4});
  }
  EXPECT_THAT(plan.why, HasSubstr("a holds stages 0, 4 ("));
}

TEST(MakePlan, TakesTheJobsOwnCutsForInterleavedStages) {
  JobSpec spec = Scheduled("interleaved-1f1b", 0);
  spec.pipeline.cuts = {1, 2, 5};

  const auto plan = Value(MakePlan(spec, SmallModel(8), Workers(2)));

  ASSERT_EQ(plan.stages.size(), 4u);
  EXPECT_EQ(plan.stages[2].layers, (LayerRange{2, 5}));
  EXPECT_EQ(plan.stages[2].worker, WorkerId{10});
}

TEST(MakePlan, SaysWhatInterleavingNeeds) {
  JobSpec spec = Scheduled("interleaved-1f1b", 8);
  spec.train.batch = 24;

  for (const auto& status : {MakePlan(spec, SmallModel(8), Workers(4)).status(),
                             CheckPlannable(spec, SmallModel(8), Workers(4))}) {
    ExpectError(status, absl::StatusCode::kInvalidArgument,
                HasSubstr("a multiple of 4"));
  }
}

TEST(MakePlan, WantsAWorkerForEachStageOfPipedream) {
  const ModelDescription model = SmallModel(8);
  EXPECT_TRUE(MakePlan(Scheduled("pipedream", 4), model, Workers(4)).ok());
  EXPECT_TRUE(MakePlan(Scheduled("pipedream", 0), model, Workers(3)).ok());

  const auto plan = MakePlan(Scheduled("pipedream", 4), model, Workers(3));

  ExpectError(plan.status(), absl::StatusCode::kInvalidArgument,
              HasSubstr("pipedream needs a worker for each stage, got 4 stages "
                        "on 3 workers"));
}

TEST(MakePlan, CountsVersionsOfTheWeights) {
  JobSpec spec = Scheduled("pipedream", 2);
  spec.pipeline.cuts = {1};
  const ModelDescription model = SmallModel(2);
  const auto need = [&](int stage, int micro_batches, int versions) {
    return EstimateBytes(
        model, spec.train, {{stage, stage + 1}},
        {{.micro_batches = micro_batches, .versions = versions}});
  };
  std::vector<PlannerWorker> workers = Workers(2);
  workers[0].memory_bytes = need(0, 2, 2);
  workers[1].memory_bytes = need(1, 1, 1);
  EXPECT_TRUE(MakePlan(spec, model, workers).ok());

  // NOAM versions everywhere: one more on the last stage.
  spec.pipeline.vertical_sync = true;
  EXPECT_EQ(MakePlan(spec, model, workers).status().code(),
            absl::StatusCode::kResourceExhausted);
  workers[1].memory_bytes = need(1, 1, 2);
  EXPECT_TRUE(MakePlan(spec, model, workers).ok());
}

// Workers "large" (10) and "small" (11).
std::vector<PlannerWorker> LargeAndSmall(int64_t large_bytes,
                                         int64_t small_bytes) {
  return {{WorkerId{10}, "large", large_bytes, "m"},
          {WorkerId{11}, "small", small_bytes, "n"}};
}

// Whether the job's plan with this cut fits the workers, in either order.
bool CutFits(JobSpec spec, const ModelDescription& model, int cut,
             const std::vector<PlannerWorker>& workers) {
  spec.pipeline.stages = 0;
  spec.pipeline.cuts = {cut};
  for (const bool turned : {false, true}) {
    spec.pipeline.workers = {workers[turned].name, workers[!turned].name};
    if (MakePlan(spec, model, workers).ok()) return true;
  }
  return false;
}

// The profiles measured less than the check counts: a search by these would
// choose a cut that is refused.
TEST(MakePlan, FindsTheCutsThatFit) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  JobSpec spec = Job(2);
  spec.pipeline.policy = "optimal";
  spec.model = DefaultModel("gpt2");
  spec.model.lora.rank = 4;
  spec.train.batch = 8;
  spec.train.micro_batch = 2;
  const ModelDescription model = Value(DescribeModel(spec.model, {192}, 50257));
  const std::vector<PlannerWorker> workers =
      LargeAndSmall(2007 * kMiB, 241 * kMiB);
  LayerMeasurement layer;
  layer.forward.wall = 0.01;
  layer.kept_bytes = 1;  // of what is kept, far less than described
  const Measurements measured =
      MeasuredOn(spec, model, {{"large", layer}, {"small", layer}});
  std::vector<int> fit;
  const int layers = static_cast<int>(model.layers.size());
  for (int cut = 1; cut < layers; ++cut) {
    if (CutFits(spec, model, cut, workers)) fit.push_back(cut);
  }
  ASSERT_THAT(fit, AllOf(SizeIs(Gt(0u)), SizeIs(Lt(10u))));

  const auto plan = Value(MakePlan(spec, model, workers, measured));

  ASSERT_THAT(plan.stages, SizeIs(2)) << plan.why;
  EXPECT_NE(plan.stages[0].worker, plan.stages[1].worker);
  EXPECT_THAT(fit, Contains(plan.stages[0].layers.last)) << plan.why;
}

// A plan of two stages on two workers is found if there is one.
TEST(MakePlan, FindsAFittingCutWhateverTheScheduleAndTheMemory) {
  SplitMix64 random(26);
  int fitting = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    ModelDescription model = SmallModel(5);
    for (Layer& layer : model.layers) {
      layer.parameter_bytes = 100 * static_cast<int64_t>(random.Below(20));
      layer.activation_bytes = 10 * static_cast<int64_t>(random.Below(20));
    }
    JobSpec spec =
        Scheduled(std::vector<std::string>{"1f1b", "gpipe", "zero-bubble",
                                           "pipedream"}[random.Below(4)],
                  2);
    spec.pipeline.vertical_sync = random.Below(2) == 0;
    if (random.Below(3) == 0) {
      spec.train.activation_checkpointing = "every-2";
    }
    const auto some = [&random] {
      return 3000 + 300 * static_cast<int64_t>(random.Below(50));
    };
    const std::vector<PlannerWorker> workers = LargeAndSmall(some(), some());
    bool fits = false;
    for (int cut = 1; cut < 5; ++cut) {
      fits = fits || CutFits(spec, model, cut, workers);
    }
    fitting += fits ? 1 : 0;
    refused += fits ? 0 : 1;

    const auto plan = MakePlan(spec, model, workers);

    EXPECT_EQ(plan.ok() && plan->memory.size() == 2, fits)
        << round << " " << spec.pipeline.schedule << ": "
        << (plan.ok() ? plan->why : plan.status().message());
  }
  EXPECT_GT(fitting, 50);
  EXPECT_GT(refused, 50);
}

// 23.5 GiB and 24 MiB, of which the small one can hold nothing.
TEST(MakePlan, GoesWithoutAMachineThatHoldsNothing) {
  ModelDescription model = SmallModel(8);
  for (Layer& layer : model.layers) layer.parameter_bytes = 35 << 20;
  std::vector<PlannerWorker> workers =
      LargeAndSmall(int64_t{23} << 30, 24 << 20);
  std::swap(workers[0], workers[1]);
  const auto expect = [&](const JobSpec& spec, const char* what) {
    EXPECT_TRUE(CheckPlannable(spec, model, workers).ok()) << what;
    const auto plan = Value(MakePlan(spec, model, workers));
    for (const int64_t holder : Holders(plan)) EXPECT_EQ(holder, 10) << what;
    EXPECT_THAT(plan.why,
                AnyOf(HasSubstr("small is left out"),
                      HasSubstr("planned without small: worker small has "
                                "24.0 MiB")))
        << what;
  };
  for (const std::string& policy : PolicyNames()) {
    for (const int stages : {0, 2, 3}) {
      JobSpec spec = Job(stages);
      spec.pipeline.policy = policy;
      expect(spec, policy.c_str());
    }
  }
  expect(Scheduled("interleaved-1f1b", 4), "interleaved");
  JobSpec spec = Job(0);
  spec.pipeline.cuts = {2, 5};
  expect(spec, "cuts");
}

// Layers of 1 MiB, with as much of gradients.
ModelDescription ModelOfMiB(int layers) {
  ModelDescription model = SmallModel(layers);
  for (Layer& layer : model.layers) layer.parameter_bytes = 1 << 20;
  return model;
}

TEST(MakePlan, GivesTheJobsOwnStagesToWorkersThatHoldThem) {
  const struct {
    std::vector<int32_t> cuts;
    std::vector<int64_t> memory_mib;  // [stages], enough and not twice as much
  } kCases[] = {{{7}, {15, 3}},
                {{1}, {3, 15}},
                {{1, 3}, {3, 5, 11}},
                {{5, 7}, {11, 5, 3}},
                {{2, 7}, {5, 11, 3}}};
  for (const auto& test : kCases) {
    JobSpec spec = Job(0);
    spec.pipeline.cuts = test.cuts;
    std::vector<int> order(test.memory_mib.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      std::vector<PlannerWorker> workers = Workers(1);
      workers[0].memory_bytes = 1;
      for (const int stage : order) {
        workers.push_back({WorkerId{20 + stage}, absl::StrCat("w", stage),
                           test.memory_mib[stage] << 20, ""});
      }

      const auto plan = Value(MakePlan(spec, ModelOfMiB(8), workers));

      for (size_t stage = 0; stage < order.size(); ++stage) {
        EXPECT_EQ(plan.stages[stage].worker.value, 20 + stage) << plan.why;
      }
      EXPECT_EQ(IllSaid(plan.why), "") << plan.why;
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// Two of the large ones do: three do not divide the micro-batches.
TEST(MakePlan, GoesWithoutAllMachinesThatHoldNothing) {
  const ModelDescription model = ModelOfMiB(12);
  std::vector<PlannerWorker> workers = Workers(12);
  std::vector<double> seconds;
  for (int i = 0; i < 12; ++i) {
    workers[i].memory_bytes = i < 9 ? 100 + i : 64 << 20;
    seconds.push_back(i < 9 ? 0.001 : 0.01);
  }
  const std::pair<const char*, int> cases[] = {{"interleaved-1f1b", 0},
                                               {"interleaved-1f1b", 4},
                                               {"interleaved-1f1b", 8},
                                               {"interleaved-1f1b", 12},
                                               {"1f1b", 0},
                                               {"1f1b", 4},
                                               {"1f1b", 12}};
  for (const auto& [schedule, stages] : cases) {
    JobSpec spec = Scheduled(schedule, stages);
    if (stages == 12) spec.train.batch = 48;

    const auto plan = Value(MakePlan(spec, model, workers,
                                     Measured(spec, model, workers, seconds)));

    for (const int64_t holder : Holders(plan)) EXPECT_GE(holder, 19);
    EXPECT_EQ(IllSaid(plan.why), "") << plan.why;
  }
}

TEST(MakePlan, SaysWhatWouldFitWhereTheJobDoesNotAllowIt) {
  const ModelDescription model = ModelOfMiB(8);
  const std::vector<PlannerWorker> workers = LargeAndSmall(15 << 20, 5 << 20);
  JobSpec spec = Scheduled("1f1b", 2);
  spec.pipeline.cuts = {4};
  spec.pipeline.workers = {"large", "small"};

  ExpectError(MakePlan(spec, model, workers).status(),
              absl::StatusCode::kResourceExhausted,
              AllOf(StartsWith("worker small has 5.0 MiB"),
                    HasSubstr("would fit: 2 stages of ")));
  // As many copies of the weights as stages.
  spec = Scheduled("pipedream", 2);
  ExpectError(MakePlan(spec, model, LargeAndSmall(17 << 20, 1 << 20)).status(),
              absl::StatusCode::kResourceExhausted,
              HasSubstr("would fit: 1 stage of 8 layers"));
}

// --- noise ------------------------------------------------------------------

// Twelve blocks of two layers, between an embedding and a head.
std::vector<double> TrueSeconds() {
  std::vector<double> seconds = {0.004};
  for (int block = 0; block < 12; ++block) {
    seconds.insert(seconds.end(), {0.008, 0.012});
  }
  seconds.push_back(0.001);
  return seconds;
}

// The plan of profiles of a, b, c and d, of one kind: true times, times
// slowness[i], off by up to `machine_noise` as a whole and `layer_noise` each;
// their runs lie 12 % apart.
Plan NoisyPlan(const std::vector<double>& slowness, double machine_noise,
               double layer_noise, uint64_t seed) {
  const JobSpec spec = Scheduled("1f1b", 4);
  const ModelDescription model = SmallModel(26);
  SplitMix64 random(seed);
  const auto off = [&random](double noise) {
    return 1 + noise * (2 * random.Unit() - 1);
  };
  Measurements measurements = Measured(spec, model, Workers(4),
                                       std::vector<double>(slowness.size(), 1));
  const std::vector<double> seconds = TrueSeconds();
  size_t machine = 0;
  for (auto& [key, profile] : measurements.profiles) {
    profile.cpu_model = "Cortex-A76";
    const double whole = slowness[machine++] * off(machine_noise);
    for (size_t i = 0; i < seconds.size(); ++i) {
      LayerMeasurement& layer = profile.layers[i];
      layer.flops = 1e9 * seconds[i];
      layer.forward.wall = seconds[i] * whole * off(layer_noise);
      layer.backward.wall = 2 * seconds[i] * whole * off(layer_noise);
      layer.forward.spread = 0.12 * layer.forward.wall;
      layer.backward.spread = 0.12 * layer.backward.wall;
    }
  }
  return Value(MakePlan(spec, model, Workers(4), measurements));
}

// The longest stage by the true times.
double TruePace(const Plan& plan, const std::vector<double>& slowness) {
  const std::vector<double> seconds = TrueSeconds();
  double longest = 0;
  for (const StageOfPlan& stage : plan.stages) {
    const double sum =
        std::accumulate(seconds.begin() + stage.layers.first,
                        seconds.begin() + stage.layers.last, 0.0);
    longest = std::max(longest, sum * slowness[stage.worker.value - 10]);
  }
  return longest;
}

TEST(MakePlan, CutsLikeMachinesEvenlyDespiteNoise) {
  const std::vector<double> alike = {1, 1, 1, 1};
  const double best = TruePace(NoisyPlan(alike, 0, 0, 0), alike);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Plan noisy = NoisyPlan(alike, 0.12, 0.12, seed);

    EXPECT_NEAR(TruePace(noisy, alike), best, 1e-9) << seed << noisy.why;
    EXPECT_THAT(noisy.why, AllOf(HasSubstr("4 like machines were pooled"),
                                 HasSubstr("which is noise")));
  }
}

TEST(MakePlan, SeesAMachineOfTheKindThatIsReallySlower) {
  const std::vector<double> slowness = {1, 1, 1.3, 1};
  const double best = TruePace(NoisyPlan(slowness, 0, 0, 0), slowness);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Plan noisy = NoisyPlan(slowness, 0.03, 0.12, seed);

    EXPECT_LT(TruePace(noisy, slowness), 1.1 * best) << seed << noisy.why;
    EXPECT_THAT(noisy.why, HasSubstr("c takes "));
  }
}

}  // namespace
}  // namespace paceline
