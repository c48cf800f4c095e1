#include "core/plan/memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/random.h"
#include "core/data/data_sets.h"
#include "core/plan/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TrainSpec Train(const std::string& optimizer, double momentum = 0) {
  TrainSpec train;
  train.batch = 16;
  train.micro_batch = 8;
  train.optimizer.name = optimizer;
  train.optimizer.momentum = momentum;
  return train;
}

// Forward only: parameters, and the layer that takes most room while it runs.
TEST(EstimateBytes, OfInferenceHasNoCopiesAndOneLayerAtATime) {
  ModelSpec mlp;
  mlp.name = "mlp";
  mlp.hidden = {64};
  const ModelDescription model = DescribeModel(mlp, {1, 8, 8}, 10).value();
  TrainSpec train = ForInference({.micro_batch = 4}, 1);
  int64_t parameters = 0;
  int64_t widest = 0;
  for (const Layer& layer : model.layers) {
    parameters += layer.parameter_bytes;
    widest = std::max(widest, layer.activation_bytes + layer.output_bytes);
  }
  const LayerRange all = {0, static_cast<int>(model.layers.size())};

  EXPECT_EQ(EstimateBytes(model, train, {all}, {kInferenceKeeps}),
            parameters + 4 * widest);
}

TEST(EstimateBytes, CountsParametersGradientsAndKeptActivations) {
  // Layers 0 and 1: 300 bytes of parameters, as many of gradients; 3 kept x 8
  // samples x 20 bytes.  No boundary.
  EXPECT_EQ(EstimateBytes(SmallModel(2), Train("sgd"), {{0, 2}}, {{3}}),
            2 * 300 + 3 * 8 * 20);
}

TEST(EstimateBytes, CountsATeacherAsInference) {
  ModelDescription model = SmallModel(2);
  const auto teacher = std::make_shared<const ModelDescription>(SmallModel(3));
  const int64_t alone = EstimateBytes(model, Train("adamw"), {{0, 2}}, {{3}});
  model.teacher = teacher;

  EXPECT_EQ(EstimateBytes(model, Train("adamw"), {{0, 2}}, {{3}}),
            alone + EstimateBytes(*teacher, Train("sgd"), {{0, 3}},
                                  {kInferenceKeeps}));
}

TEST(EstimateBytes, CountsOptimizerState) {
  const ModelDescription model = SmallModel(2);

  const int64_t plain = EstimateBytes(model, Train("sgd"), {{0, 2}}, {{1}});

  EXPECT_EQ(EstimateBytes(model, Train("sgd", 0.9), {{0, 2}}, {{1}}),
            plain + 300);
  EXPECT_EQ(EstimateBytes(model, Train("adamw"), {{0, 2}}, {{1}}),
            plain + 2 * 300);
}

TEST(EstimateBytes, CountsTwoFramesForEachBoundaryOfARange) {
  const ModelDescription model = SmallModel(3);
  constexpr int64_t kFrame = 8 * 4;

  EXPECT_EQ(EstimateBytes(model, Train("sgd"), {{0, 1}}, {{0}}),
            2 * 100 + 2 * kFrame);
  EXPECT_EQ(EstimateBytes(model, Train("sgd"), {{1, 2}}, {{0}}),
            2 * 200 + 4 * kFrame);
  EXPECT_EQ(EstimateBytes(model, Train("sgd"), {{2, 3}}, {{0}}),
            2 * 300 + 2 * kFrame);
}

TEST(EstimateBytes, AddsUpTheRangesOfAWorker) {
  const ModelDescription model = SmallModel(3);
  const TrainSpec train = Train("adamw");

  EXPECT_EQ(EstimateBytes(model, train, {{0, 1}, {1, 3}}, {{4}, {2}}),
            EstimateBytes(model, train, {{0, 1}}, {{4}}) +
                EstimateBytes(model, train, {{1, 3}}, {{2}}));
  EXPECT_EQ(EstimateBytes(model, train, {}, {}), 0);
}

TEST(EstimateBytes, CountsOlderVersionsOfTheParametersAlone) {
  const ModelDescription model = SmallModel(2);
  const TrainSpec train = Train("adamw");
  const StageKeeps four{.micro_batches = 3, .versions = 4};

  EXPECT_EQ(EstimateBytes(model, train, {{0, 2}}, {four}),
            EstimateBytes(model, train, {{0, 2}}, {{3}}) + 3 * 300);
}

TEST(EstimateBytes, CountsGradientsBetweenTheHalvesOfABackward) {
  const ModelDescription model = SmallModel(2);
  const TrainSpec train = Train("sgd");
  const StageKeeps split{.micro_batches = 3, .split = 2};

  // 2 split x 8 samples x 4 bytes a layer.
  EXPECT_EQ(EstimateBytes(model, train, {{0, 2}}, {split}),
            EstimateBytes(model, train, {{0, 2}}, {{3}}) + 2 * 8 * 8);
}

TEST(EstimateBytes, NeverWrapsAround) {
  ModelDescription model = SmallModel(2);
  TrainSpec train = Train("adamw");
  train.micro_batch = int64_t{1} << 62;
  EXPECT_EQ(EstimateBytes(model, train, {{0, 2}}, {{2}}), kMost);

  model.layers[1].parameter_bytes = kMost / 2;
  train.micro_batch = 1;
  EXPECT_EQ(EstimateBytes(model, train, {{0, 2}}, {{2}}), kMost);
}

TEST(BytesText, UsesTheLargestUnitThatFits) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1.0 KiB");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText((1 << 20) - 1), "1023.9 KiB");
  EXPECT_EQ(BytesText(1 << 20), "1.0 MiB");
  EXPECT_EQ(BytesText(int64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(BytesText(kMost), "7.9 EiB");
}

// Layers of SmallModel: 100 (i + 1) bytes of parameters each; a sample keeps 10
// bytes and gives 4 (8 with two frames).
TEST(EstimateBytes, OfARecomputingStageCountsInputsAndOneSegment) {
  const ModelDescription model = SmallModel(4);
  TrainSpec train = Train("sgd");
  const int64_t parameters = 2 * 1000;
  const int64_t input = InputBytes(model, 0);
  const int64_t between = InputBytes(model, 1);
  int64_t kept = 0;
  for (int i = 0; i < 4; ++i) kept += KeptBytes(model, i, Precision::kF32);

  train.activation_checkpointing = "stage";
  EXPECT_EQ(EstimateBytes(model, train, {{0, 4}}, {{3}}),
            parameters + 8 * (3 * input + kept));

  train.activation_checkpointing = "every-2";
  EXPECT_EQ(EstimateBytes(model, train, {{0, 4}}, {{3}}),
            parameters + 8 * (3 * (input + between) + kept / 2));

  // Halves of backwards keep what was computed again.
  const StageKeeps split{.micro_batches = 3, .split = 1};
  train.activation_checkpointing = "stage";
  int64_t outputs = 0;
  for (const Layer& layer : model.layers) outputs += layer.output_bytes;
  EXPECT_EQ(EstimateBytes(model, train, {{0, 4}}, {split}),
            parameters + 8 * (3 * input + kept + kept + outputs));

  // A forward alone recomputes nothing.
  EXPECT_EQ(EstimateBytes(model, train, {{0, 4}}, {{0}}),
            EstimateBytes(model, Train("sgd"), {{0, 4}}, {{0}}));
}

TEST(EstimateBytes, InBf16CountsCastsOfEveryVersion) {
  const ModelDescription model = SmallModel(2);
  const TrainSpec train = Train("sgd");
  const StageKeeps keeps{.micro_batches = 0, .versions = 3};

  EXPECT_EQ(EstimateBytes(model, train, {{0, 2}}, {keeps}, Precision::kBf16),
            EstimateBytes(model, train, {{0, 2}}, {keeps}) + 3 * 150);
}

TEST(KeptBytes, InBf16AreHalfButForTheInput) {
  const ModelDescription model = SmallModel(2);
  const int64_t kept = KeptBytes(model, 1, Precision::kF32);

  EXPECT_EQ(KeptBytes(model, 1, Precision::kBf16),
            kept / 2 + InputBytes(model, 1));
}

TEST(KeptBytes, OfAnLstmAreFloat32InBf16Too) {
  ModelDescription model = SmallModel(2);
  model.layers[1].operations = {{"lstm", "a", {4, 4}, 0}};

  EXPECT_EQ(KeptBytes(model, 1, Precision::kBf16),
            KeptBytes(model, 1, Precision::kF32));
}

// A frozen weight has a value and nothing else; borrowed ones too.
TEST(EstimateBytes, CountsFrozenWeightsOnce) {
  ModelDescription model = SmallModel(2);
  const int64_t bytes = model.layers[0].parameter_bytes;
  model.layers[0].parameters = {{"w", {bytes / 4}, false, DType::kF32, true}};
  const auto all = [&](int versions, Precision precision = Precision::kF32) {
    return EstimateBytes(model, Train("adamw"), {{0, 2}}, {{1, 0, versions}},
                         precision);
  };
  const int64_t frozen = all(1), frozen_stash = all(3),
                frozen_bf16 = all(1, Precision::kBf16);

  model.layers[0].parameters[0].frozen = false;

  EXPECT_EQ(all(1), frozen + 3 * bytes);  // a gradient and two moments
  EXPECT_EQ(all(3), frozen_stash + 5 * bytes);
  EXPECT_EQ(all(1, Precision::kBf16), frozen_bf16 + 3 * bytes);
  model.layers[1].borrowed = {{"w", {10}, false, DType::kF32, true}};
  model.layers[1].borrowed_bytes = 40;
  const int64_t borrowed = all(3);
  model.layers[1].borrowed[0].frozen = false;
  EXPECT_EQ(all(3), borrowed + 3 * 40);
}

// Two layers of 100 and 50 trainable numbers, and a buffer of 7.
ModelDescription MemberModel() {
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
  return EstimateBytes(MemberModel(), spec.train, {{0, 2}}, {{1}});
}

TEST(MemberBytes, FrozenWeightsAreInNoRound) {
  ModelDescription model = MemberModel();
  const RoundBytes all = RoundBytesOf(Spec(), model, 3);
  Parameter& weight = model.layers[0].parameters[0];
  weight.trainable = false;
  weight.frozen = true;

  const RoundBytes rest = RoundBytesOf(Spec(), model, 3);

  EXPECT_EQ(all.gradient, 4 * 150);
  EXPECT_EQ(rest.gradient, 4 * 50);
  EXPECT_LT(rest.kept + rest.served, all.kept + all.served);
  EXPECT_EQ(GroupStateBytes(Spec(), model),
            GroupStateBytes(Spec(), MemberModel()) - 2 * 4 * 100);
}

TEST(MemberBytes, AreTheWholeModelAndThePartsOfARound) {
  struct Case {
    const char* changes;
    int members;
    int64_t besides;  // what training takes
  };
  const Case cases[] = {
      // Gradient in place, a result of 600 bytes and two before it, and the
      // parts of four others.
      {"", 5, 3 * 600 + 4 * 600},
      {"", 1, 3 * 600},
      // Shards divide what a server holds: one, or two of five at once on some
      // of three members.
      {"aggregation.shards=5", 5, 3 * 600 + 4 * 120},
      {"aggregation.shards=5", 3, 3 * 600 + 2 * 2 * 120},
      // A narrow codec needs a part of its own but halves all others.
      {"aggregation.codec=bf16", 5, 300 + 3 * 300 + 4 * 300},
      // Gossip keeps no results, zeno tries a step on weights of its own.
      {"aggregation.mode=gossip", 1, 600},
      {"aggregation.rule=zeno", 5, 3 * 600 + 4 * 600 + 600},
  };
  for (const auto& [changes, members, besides] : cases) {
    JobSpec spec = Spec();
    ChangeJob(spec, changes);

    EXPECT_EQ(MemberBytes(spec, MemberModel(), members),
              Training(spec) + besides)
        << changes << ", " << members << " members";
  }
}

TEST(MemberBytes, ASharedParameterIsThereOnce) {
  ModelDescription model = MemberModel();
  model.layers[1].borrowed = {{"weight", {100}}};
  model.layers[1].borrowed_bytes = 400;

  EXPECT_EQ(MemberBytes(Spec(), model, 5),
            MemberBytes(Spec(), MemberModel(), 5));
}

TEST(MemberBytes, AreWhatAPlanOfOneMemberCountsAndRefuses) {
  JobSpec spec = Spec();
  spec.aggregation.members = 5;
  spec.pipeline.stages = 1;
  spec.pipeline.policy = "equal";
  spec.pipeline.schedule = "gpipe";
  const int64_t bytes = MemberBytes(spec, MemberModel(), 5);

  const auto plan =
      Value(MakePlan(spec, MemberModel(), {{WorkerId(1), "a", bytes, ""}}));
  const auto small =
      MakePlan(spec, MemberModel(), {{WorkerId(1), "a", bytes - 1, ""}});
  EXPECT_EQ(BytesOn(plan, WorkerId(1)), bytes);
  ASSERT_TRUE(absl::IsResourceExhausted(small.status())) << small.status();
  EXPECT_THAT(std::string(small.status().message()),
              testing::HasSubstr("as one of 5 members with the whole model"));
}

// 100 million samples.
JobSpec ManySamples() {
  JobSpec spec;
  spec.data.name = "synthetic";
  spec.data.train_samples = 100'000'000;
  return spec;
}

TEST(DataBytes, AreTheOrderOfAnEpochWhichInferenceDoesNotHave) {
  JobSpec spec = ManySamples();
  EXPECT_EQ(DataBytes(spec), 400'000'000);
  spec.data.distribution = "by-label";
  EXPECT_EQ(DataBytes(spec), 1'000'000'000);
  spec.kind = "infer";
  EXPECT_EQ(DataBytes(spec), 0);

  JobSpec pictures;
  pictures.data = DefaultDataSpec("fashion-mnist");
  EXPECT_EQ(DataBytes(pictures), 60'000 * (4 + 28 * 28 + 1));
  pictures.data = DefaultDataSpec("imagefolder");
  EXPECT_EQ(DataBytes(pictures), 0);  // a worker knows how many there are
}

TEST(DataBytes, AreCountedWhereTheDataIsReadAndNowhereElse) {
  JobSpec few = Spec();
  few.data = ManySamples().data;
  few.data.train_samples = 0;
  JobSpec many = few;
  many.data = ManySamples().data;
  EXPECT_EQ(MemberBytes(many, MemberModel(), 5),
            MemberBytes(few, MemberModel(), 5) + 400'000'000);
  EXPECT_EQ(JoinerBytes(many, MemberModel(), 5),
            JoinerBytes(few, MemberModel(), 5) + 400'000'000);

  for (JobSpec* const spec : {&few, &many}) {
    spec->aggregation = {};
    spec->pipeline.stages = 2;
    spec->pipeline.policy = "equal";
    spec->pipeline.schedule = "gpipe";
  }
  std::vector<PlannerWorker> workers = {{WorkerId(1), "a", 0, ""},
                                        {WorkerId(2), "b", 0, ""}};
  const auto before = Value(MakePlan(few, MemberModel(), workers));
  const auto plan = Value(MakePlan(many, MemberModel(), workers));
  const WorkerId reader = plan.stages[0].worker;
  const WorkerId other = plan.stages[1].worker;
  EXPECT_EQ(BytesOn(plan, reader), BytesOn(before, reader) + 400'000'000);
  EXPECT_EQ(BytesOn(plan, other), BytesOn(before, other));

  // The planner gives the first stage to the one that has room for it.
  many.pipeline.policy = "optimal";
  workers[0].memory_bytes = 300'000'000;
  const auto moved = Value(MakePlan(many, MemberModel(), workers));
  EXPECT_EQ(moved.stages[0].worker, WorkerId(2));
}

TEST(JoinerBytes, AreThoseOfAMemberWhereThoseAreMore) {
  EXPECT_EQ(JoinerBytes(Spec(), MemberModel(), 100),
            MemberBytes(Spec(), MemberModel(), 100));
}

TEST(JoinerBytes, HaveTheStateTwiceWhileItIsTakenOver) {
  JobSpec spec = Spec();
  spec.train.micro_batch = 1;
  ModelDescription model = MemberModel();
  for (Layer& layer : model.layers) {
    layer.output_bytes = layer.activation_bytes = 0;
  }
  // Parameters of 600 bytes and a buffer of 28; two moments of 600.
  EXPECT_EQ(GroupStateBytes(spec, model), 628 + 1200);
  int64_t layers = 0;
  for (int i = 0; i < std::ssize(model.layers); ++i) {
    layers += StateBytes(spec, model, {i, i + 1});
  }
  EXPECT_EQ(layers, 628 + 1200);

  EXPECT_EQ(JoinerBytes(spec, model, 1), 4 * 628 + 628 + 1200);
  EXPECT_LT(MemberBytes(spec, model, 1), JoinerBytes(spec, model, 1));
}

TEST(JoinerBytes, DoNotWrapAroundNorDoMemberBytes) {
  ModelDescription model = MemberModel();
  model.layers[0].parameters[0].shape = {int64_t{1} << 61};
  model.layers[0].parameter_bytes = kMost;

  EXPECT_EQ(JoinerBytes(Spec(), model, 2), kMost);
  EXPECT_EQ(MemberBytes(Spec(), model, 1000), kMost);
}

// Whether some order of the sizes holds the needs.
bool SomeOrderHolds(const std::vector<double>& needs,
                    std::vector<double> sizes) {
  std::sort(sizes.begin(), sizes.end());
  do {
    size_t held = 0;
    while (held < needs.size() &&
           (sizes[held] == 0 || needs[held] <= sizes[held])) {
      ++held;
    }
    if (held == needs.size()) return true;
  } while (std::next_permutation(sizes.begin(), sizes.end()));
  return false;
}

TEST(PlacesFor, FindsPlacesWhereSomeOrderHasThem) {
  SplitMix64 random(3);
  int held = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<double> needs, sizes;
    for (int i = 0; i < 4; ++i) needs.push_back(1 + random.Below(6));
    for (int i = 0; i < 5; ++i) sizes.push_back(random.Below(6));

    const std::vector<int> places = PlacesFor(needs, sizes);

    ASSERT_EQ(places.size() == 4, SomeOrderHolds(needs, sizes)) << round;
    held += !places.empty();
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(std::count(places.begin(), places.end(), places[i]), 1);
      EXPECT_TRUE(sizes[places[i]] == 0 || needs[i] <= sizes[places[i]]);
    }
  }
  EXPECT_GT(held, 50);
  EXPECT_LT(held, 450);
}

TEST(PlacesFor, ChangesNothingWithoutNeed) {
  EXPECT_THAT(PlacesFor({1, 9, 2}, {2, 9, 0}), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(PlacesFor({1, 9, 2}, {2, 8, 3, 9, 9}),
              testing::ElementsAre(0, 3, 2));
  EXPECT_THAT(PlacesFor({1, 1}, {1}), testing::IsEmpty());
}

}  // namespace
}  // namespace paceline
