#include "worker/control/run_order.h"

#include "core/plan/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr WorkerId kA{4}, kB{2}, kC{9};

ModelDescription FourLayers() {
  ModelDescription model;
  model.name = "four";
  model.input = {3};
  model.classes = 2;
  for (const int64_t width : {5, 6, 7, 2}) {
    Layer layer;
    layer.output = {width};
    model.layers.push_back(layer);
  }
  return model;
}

// Stages 0 and 1 on kA, 2 on kB.
RunOrder ThreeStages() {
  RunOrder order;
  order.fence = {JobId{1}, 1, 1};
  order.spec.train.batch = 8;
  order.spec.train.micro_batch = 3;
  order.stages = {{0, {0, 1}, kA, "a", "h:1"},
                  {1, {1, 3}, kA, "a", "h:1"},
                  {2, {3, 4}, kB, "b", "h:2"}};
  return order;
}

TEST(WorkerIndexOfStage, NumbersWorkersByTheirFirstStage) {
  EXPECT_THAT(WorkerIndexOfStage(ThreeStages(), kA), ElementsAre(0, 0, 1));
}

TEST(StagesOf, FindsAllStagesOfAWorker) {
  EXPECT_THAT(StagesOf(ThreeStages(), kA), ElementsAre(0, 1));
  EXPECT_THAT(StagesOf(ThreeStages(), kC), ElementsAre());
}

TEST(CheckOrder, AcceptsStagesThatCoverTheModel) {
  EXPECT_TRUE(CheckOrder(ThreeStages(), FourLayers(), kB).ok());
}

// A mistake in an order, and a word of the message about it.
struct Wrong {
  const char* says;
  void (*spoil)(RunOrder&);
  WorkerId self = kA;
};

// Whether `check` says so of each.
template <typename Check>
void ExpectRefused(const RunOrder& good, const std::vector<Wrong>& all,
                   const Check& check) {
  for (const Wrong& wrong : all) {
    RunOrder order = good;
    wrong.spoil(order);
    const absl::Status status = check(order, FourLayers(), wrong.self);
    EXPECT_FALSE(status.ok()) << wrong.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.says));
  }
}

TEST(CheckOrder, RefusesWhatTheCoordinatorCouldHaveSentWrong) {
  ExpectRefused(ThreeStages(),
                {{"layer 1 comes next",
                  [](RunOrder& o) { o.stages[1].layers.first = 2; }},
                 {"stages cover 9 layers, the model four has 4",
                  [](RunOrder& o) { o.stages[2].layers.last = 9; }},
                 {"no stage is placed on this worker", [](RunOrder&) {}, kC},
                 {"an attempt before its own",
                  [](RunOrder& o) { o.base.attempt = o.fence.attempt; }},
                 {"threads", [](RunOrder& o) { o.threads = 0; }}},
                CheckOrder);
}

TEST(CheckOrder, TakesABaseOfAnEarlierAttempt) {
  RunOrder order = ThreeStages();
  order.base = {order.fence.attempt - 1, 7};

  EXPECT_TRUE(CheckOrder(order, FourLayers(), kA).ok());
}

TEST(CheckSpecOfOrder, TakesEveryKindOfOrderThatACoordinatorSends) {
  JobSpec training;
  training.model.name = "mlp";
  training.data.name = "synthetic";
  JobSpec inference = training;
  inference.kind = kInferKind;
  inference.infer.micro_batch = 3;
  inference.train = ForInference(inference.infer, 1);
  JobSpec group = training;
  group.aggregation.mode = "rolling";
  JobSpec with_faults = group;
  with_faults.faults = {{"w1", 1, "kill"}};
  JobSpec unknown_script = training;  // a worker is asked what is in it
  unknown_script.model.name = kScriptModel;
  unknown_script.model.file = "/net.pt";

  for (const JobSpec& spec :
       {training, inference, group, with_faults, unknown_script}) {
    const absl::Status status = CheckSpecOfOrder(spec);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(CheckSpecOfOrder, NamesTheFirstProblemAndWhereItIs) {
  JobSpec spec;
  spec.model.name = "mlp";
  spec.data.name = "synthetic";
  spec.train.micro_batch = 0;
  spec.pipeline.schedule = "no";

  const absl::Status status = CheckSpecOfOrder(spec);

  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(std::string(status.message()),
            "order: train.micro_batch: must be from 1 to train.batch, which is "
            "64; got 0");
}

TEST(MakeRunWiring, TellsTheShapeAtEachBoundaryAndRoomForTwoBatches) {
  const auto wiring = Value(MakeRunWiring(ThreeStages(), FourLayers(), kB));

  EXPECT_THAT(wiring.boundaries,
              ElementsAre(ElementsAre(SampleTensor{DType::kF32, {5}}),
                          ElementsAre(SampleTensor{DType::kF32, {7}})));
  EXPECT_EQ(wiring.micro_batch, 3);
  // Three micro-batches a batch: a forward-only one may have them all under
  // way between two workers, and inside a worker one at a time.
  EXPECT_THAT(wiring.bounds.activation_frames, ElementsAre(2, 6));
}

TEST(MakeRunWiring, TakesTheJobsCodec) {
  RunOrder order = ThreeStages();
  for (const std::string& name : CodecNames()) {
    order.spec.pipeline.codec = name;

    const auto wiring = Value(MakeRunWiring(order, FourLayers(), kB));

    EXPECT_EQ(CodecName(wiring.codec), name);
  }
}

TEST(MakeRunWiring, RefusesACodecOfALaterVersion) {
  RunOrder order = ThreeStages();
  order.spec.pipeline.codec = "fp4";

  const absl::Status status = MakeRunWiring(order, FourLayers(), kB).status();

  ExpectError(status, absl::StatusCode::kInvalidArgument,
              HasSubstr("knows fp32, bf16, fp16, int8"));
}

TEST(PredictBytes, AddsUpTheStagesOfTheWorker) {
  RunOrder order = ThreeStages();
  ModelDescription model = FourLayers();
  for (Layer& layer : model.layers) {
    layer.output_bytes = 4 * layer.output[0];
    layer.activation_bytes = 100;
    layer.parameter_bytes = 1000;
  }

  const auto a = PredictBytes(order, model, kA);
  const auto b = PredictBytes(order, model, kB);

  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  // Layer 3: itself and its gradient, one micro-batch of 3 kept, and a frame
  // each way over its boundary of 7 numbers.
  EXPECT_EQ(*b, 2 * 1000 + 3 * (100 + 2 * 28));
  EXPECT_GT(*a, 3 * 2 * 1000);
  order.spec.precision = "bf16";
  EXPECT_EQ(*PredictBytes(order, model, kB),
            2 * 1000 + 500 + 3 * (100 / 2 + 28 + 2 * 28));
}

TEST(PredictBytes, OfAMemberAreTheWholeModelAndThePartsOfItsGroup) {
  RunOrder order = ThreeStages();
  order.stages = {{0, {0, 4}, kA, "a", "h:1"}, {0, {0, 4}, kB, "b", "h:2"}};
  order.spec.aggregation.mode = "rolling";
  ModelDescription model = FourLayers();
  for (Layer& layer : model.layers) {
    layer.parameters = {{layer.name + "weight", {10}}};
    layer.parameter_bytes = 40;
  }
  order.group = GroupOrder();
  for (const WorkerId worker : {kA, kB, kC}) {
    order.group->workers.push_back({{worker, Incarnation{1}}, "w", "h:1"});
  }

  const auto bytes = Value(PredictBytes(order, model, kA));

  EXPECT_EQ(bytes, MemberBytes(order.spec, model, 3));
  // Values and gradients, a result, and the parts of two others.
  EXPECT_EQ(bytes, 2 * 160 + 3 * 160 + 2 * 160);
}

TEST(UnappliedBytes, AreHalfOfWhatIsLeft) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(UnappliedBytes(1024 * kMiB, 924 * kMiB), 50u << 20);
  EXPECT_EQ(UnappliedBytes(1024 * kMiB, 2000 * kMiB), 0u);
  EXPECT_EQ(UnappliedBytes(8192 * kMiB, 924 * kMiB), 256u << 20);
  EXPECT_EQ(UnappliedBytes(0, 924 * kMiB), 256u << 20) << "not known";
}

// kA and kB hold the whole model; kC listens.
RunOrder OrderOfAGroup() {
  RunOrder order = ThreeStages();
  order.spec.aggregation.mode = "rolling";
  order.spec.aggregation.shards = 2;
  order.stages = {{0, {0, 4}, kA, "a", "h:1"}};
  GroupOrder group;
  group.view.id = {1, 1};
  for (const WorkerId worker : {kB, kA, kC}) {
    const MemberId id = {worker, Incarnation{7}};
    group.workers.push_back({id, "w", "h:1"});
    if (worker != kC) group.view.members.push_back({id, 0});
  }
  group.view.leveller = group.view.members[0].id;
  order.group = group;
  return order;
}

TEST(CheckGroupOrder, SaysWhichProcessTheWorkerIsMemberOrListener) {
  for (const WorkerId worker : {kA, kC}) {
    const auto self =
        Value(CheckGroupOrder(OrderOfAGroup(), FourLayers(), worker));

    EXPECT_EQ(self, (MemberId{worker, Incarnation{7}}));
  }
}

TEST(CheckGroupOrder, RefusesWhatTheCoordinatorCouldHaveSentWrong) {
  ExpectRefused(
      OrderOfAGroup(),
      {{"holds a part of the model",
        [](RunOrder& o) { o.stages[0].layers.last = 3; }},
       {"a job whose aggregation.mode is none",
        [](RunOrder& o) { o.spec.aggregation.mode = "none"; }},
       {"aggregation.shards is 0",
        [](RunOrder& o) { o.spec.aggregation.shards = 0; }},
       {"no training steps to divide",
        [](RunOrder& o) { o.spec.kind = kInferKind; }},
       {"need an attempt before its own",
        [](RunOrder& o) {
          o.base = {o.fence.attempt, 5};
        }},
       {"threads is 0, need 1 or more", [](RunOrder& o) { o.threads = 0; }},
       {"", [](RunOrder& o) { o.group->view.members.clear(); }},
       {"this worker (id 4) is not in its round group",
        [](RunOrder& o) {
          o.group->workers.erase(o.group->workers.begin() + 1);
        }}},
      [](const auto&... order) { return CheckGroupOrder(order...).status(); });
}

TEST(EngineOptionsOf, HandsOnThePrecision) {
  RunOrder order = ThreeStages();
  EXPECT_EQ(EngineOptionsOf(order, FourLayers(), 1).precision, Precision::kF32);

  order.spec.precision = "bf16";

  EXPECT_EQ(EngineOptionsOf(order, FourLayers(), 1).precision,
            Precision::kBf16);
}

// Stage 0 on kA, stage 1 on kB and kC, two of three micro-batches on kC.
RunOrder Replicated() {
  RunOrder order;
  order.fence = {JobId{1}, 1, 1};
  order.spec.kind = kInferKind;
  order.spec.infer.micro_batch = 3;
  order.spec.train = ForInference(order.spec.infer, 1);
  order.stages = {{0, {0, 2}, kA, "a", "h:1"},
                  {1, {2, 4}, kB, "b", "h:2", 1},
                  {1, {2, 4}, kC, "c", "h:3", 2}};
  order.routes = {RouteTable(), RouteTable({1, 0, 1})};
  return order;
}

TEST(Replicas, SeeThePipelineWithThemselvesInTheirStage) {
  const RunOrder order = Replicated();
  ASSERT_TRUE(CheckOrder(order, FourLayers(), kA).ok());

  EXPECT_EQ(StageCount(order), 2);
  EXPECT_THAT(WorkerIndexOfStage(order, kC), ElementsAre(0, 1));
  EXPECT_THAT(StagesOf(order, kC), ElementsAre(1));
  const StageRunnerOptions options = RunnerOptions(order, FourLayers(), kC);
  EXPECT_EQ(options.worker, 1);
  EXPECT_EQ(options.turns.replica, 1);
  EXPECT_EQ(options.turns.Next(1), 2);
  EXPECT_EQ(RunnerOptions(order, FourLayers(), kA).turns.Next(1), 1);
  EXPECT_EQ(EngineOptionsOf(order, FourLayers(), 1).layers, (LayerRange{2, 4}));
}

TEST(Replicas, AreWiredToAllOfTheOtherStage) {
  const auto wiring = Value(MakeRunWiring(Replicated(), FourLayers(), kB));

  ASSERT_EQ(wiring.stages.size(), 2u);
  EXPECT_EQ(wiring.stages[0].IndexOf(kA), 0);
  EXPECT_EQ(wiring.stages[1].IndexOf(kC), 1);
  EXPECT_EQ(wiring.stages[1].IndexOf(kA), -1);
  EXPECT_EQ(wiring.stages[1].replicas[1].address, "h:3");
  EXPECT_THAT(wiring.stages[1].route.turns(), ElementsAre(1, 0, 1));
  EXPECT_EQ(wiring.boundaries.size(), 1u);
}

TEST(Replicas, ThatTrainShareOutEachBatchAnew) {
  RunOrder order = Replicated();
  order.spec.kind = kTrainKind;
  order.spec.train.batch = 9;
  ASSERT_TRUE(CheckOrder(order, FourLayers(), kC).ok());

  const StageRunnerOptions options = RunnerOptions(order, FourLayers(), kC);
  EXPECT_THAT(options.replicas, ElementsAre(1, 2));
  EXPECT_EQ(options.replica, 1);
  EXPECT_EQ(options.routes[1].ReplicaOf(7, 0), 1);
  EXPECT_TRUE(EngineOptionsOf(order, FourLayers(), 1).flat_gradient);
  EXPECT_FALSE(EngineOptionsOf(order, FourLayers(), 0).flat_gradient);
  ModelDescription model = FourLayers();
  model.layers[3].parameters = {{.name = "weight", .shape = {7, 2}}};
  const auto wiring = Value(MakeRunWiring(order, model, kB));
  EXPECT_EQ(wiring.stages[0].replica_frame_bytes, 0);
  EXPECT_EQ(wiring.stages[1].replica_frame_bytes, ReplicaFrameBytes(14, 2));

  order.spec.pipeline.schedule = "pipedream";
  EXPECT_THAT(MakeRunWiring(order, FourLayers(), kB).status().message(),
              HasSubstr("not made for replicated stages"));
}

TEST(Replicas, OfAnOrderThatDoesNotFitAreRefused) {
  ExpectRefused(
      Replicated(),
      {{"stage 1 hold different layers",
        [](RunOrder& o) { o.stages[2].layers.first = 3; }},
       {"no turn for replica 0", [](RunOrder& o) { o.routes.clear(); }},
       {"1 routes for 2 stages", [](RunOrder& o) { o.routes.pop_back(); }},
       {"replica 2 of 2",
        [](RunOrder& o) {
          o.routes[1] = RouteTable({0, 1, 2});
        }},
       {"worker 4 is a replica", [](RunOrder& o) { o.stages[2].worker = kA; }}},
      CheckOrder);
}

}  // namespace
}  // namespace paceline
