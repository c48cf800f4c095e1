// Parameters that two layers share and floats that go beside activations, in
// whole pipelines without LibTorch.
#include <cmath>
#include <memory>
#include <utility>

#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/memory_link.h"
#include "tests/worker/control/fake_pipeline.h"
#include "worker/pipeline/step_exchange.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr char kShared[] = "transformer.wte.weight";

// Six layers.
PipelineRequest Gpt(const std::string& schedule, std::vector<int> worker_of) {
  ModelSpec model = DefaultModel("gpt");
  model.depth = 2;
  model.width = 4;
  model.heads = 2;
  JobSpec spec = SmallTokenJob(model, 6);
  spec.train.clip_norm = schedule == "pipedream" ? 0 : 1.0;
  return FakePipeline(std::move(spec), schedule, std::move(worker_of));
}

TEST(Ties, EndWithTheSameBytesAtAnyCutScheduleAndPlacement) {
  ExpectTheSameBytesEverywhere(Gpt, {{0, 0},
                                     {0, 1},
                                     {0, 1, 2, 3},
                                     {0, 1, 0, 1},
                                     {0, 0, 1, 1},
                                     {0, 1, 2, 3, 4, 5}});
}

// Eight layers, with floats that go beside activations and have gradients.
PipelineRequest Gnmt(const std::string& schedule, std::vector<int> worker_of) {
  ModelSpec model = DefaultModel("gnmt");
  model.depth = 2;
  model.width = 3;
  return FakePipeline(SmallTokenJob(model, 12), schedule, std::move(worker_of));
}

TEST(Beside, EndsWithTheSameBytesAtAnyCutScheduleAndPlacement) {
  ExpectTheSameBytesEverywhere(
      Gnmt,
      {{0, 0}, {0, 1}, {0, 1, 2, 3}, {0, 1, 0, 1}, {0, 1, 2, 3, 4, 5, 6, 7}});
}

// Drops the last of what comes back over each boundary.
class Dropping final : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;

  absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                      TensorList gradient) override {
    if (gradient.size() > 1) gradient.pop_back();
    return FakeEngine::Backward(batch, micro_batch, std::move(gradient));
  }
};

// Between encoder and decoder.
TEST(Beside, AGradientTooFewIsRefused) {
  PipelineRequest request = Gnmt("gpipe", {0, 1, 2, 3, 4, 5, 6, 7});
  request.make_engine = OnStage<Dropping>(4);

  const auto outcome = RunPipeline(request);

  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status())) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()),
              HasSubstr("need 2 F32 gradients"));
}

TEST(Ties, GoOnFromCopiedStates) {
  ExpectToGoOn(Gpt("1f1b", {0, 1, 2, 3}), 1, {0});
  ExpectToGoOn(Gpt("1f1b", {0}), 3, {0, 1});
  ExpectToGoOn(Gpt("pipedream", {0}), 2, {0});
}

// One stage has nothing to be late with: an update is one of a micro-batch, and
// so are its rates.
TEST(Ties, AStreamOfOneStageIsTrainingWithSmallBatches) {
  PipelineRequest stream = Gpt("pipedream", {0});
  stream.spec.train.learning_rate = {0.01, "cosine", 3};
  PipelineRequest small = stream;
  small.spec.pipeline.schedule = "gpipe";
  small.spec.train.batch = small.spec.train.micro_batch;

  const auto streamed = RunPipeline(stream);
  const auto plain = RunPipeline(small);

  ASSERT_TRUE(streamed.ok() && plain.ok()) << streamed.status();
  EXPECT_EQ(streamed->weights, plain->weights);
}

// An engine whose gradient is no number in its second step.
class PoisonedEngine final : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;

  absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                      TensorList gradient) override {
    auto result = FakeEngine::Backward(batch, micro_batch, std::move(gradient));
    if (batch.step == 1) {
      TiedTensors tied = *Tied(kShared, /*owner=*/false);
      tied.gradient.As<float>()[0] = std::nanf("");
    }
    return result;
  }
};

TEST(Ties, ASkippedStepChangesNeitherCopy) {
  PipelineRequest request = Gpt("1f1b", {0, 1});
  request.make_engine = OnStage<PoisonedEngine>(1);

  const auto outcome = RunPipeline(request);

  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->steps.size(), 4u);
  EXPECT_FALSE(outcome->steps[0].skipped());
  EXPECT_TRUE(outcome->steps[1].skipped()) << "the owner has the user's part";
  EXPECT_FALSE(outcome->steps[2].skipped());
  EXPECT_TRUE(std::isfinite(outcome->steps[3].loss()));
}

// Two engines of one worker.
class TwoStages : public ::testing::Test {
 protected:
  TwoStages() : request_(Gpt("gpipe", {0, 0})) {
    const int layers = static_cast<int>(request_.model.layers.size());
    for (int stage = 0; stage < 2; ++stage) {
      const LayerRange range =
          stage == 0 ? LayerRange{0, 3} : LayerRange{3, layers};
      engines_.push_back(std::make_unique<FakeEngine>(
          EngineOptions{request_.model, range, request_.spec.train, stage, 2}));
    }
    links_ = MakeMemoryLinks({{{0}, {0}}, {{1}, {1}, {}, {}, {}}}).value();
    ties_ = std::make_unique<TieExchange>(
        std::vector<Tie>{{kShared, {9, 4}, 0, 1}}, 2,
        std::map<int, StageEngine*>{{0, engines_[0].get()},
                                    {1, engines_[1].get()}},
        *links_[0]);
  }

  absl::Span<float> Gradient(int stage) {
    return engines_[stage]->Tied(kShared, stage == 0)->gradient.As<float>();
  }
  absl::Span<float> Value(int stage) {
    return engines_[stage]->Tied(kShared, stage == 0)->value.As<float>();
  }

  PipelineRequest request_;
  std::vector<std::unique_ptr<StageEngine>> engines_;
  std::vector<std::unique_ptr<Link>> links_;
  std::unique_ptr<TieExchange> ties_;
};

TEST_F(TwoStages, TheOwnerGetsTheSumAndTheUserTheValue) {
  for (float& each : Gradient(0)) each = 2;
  for (float& each : Gradient(1)) each = 0.5f;
  for (float& each : Value(0)) each = 7;

  ASSERT_TRUE(ties_->AddGradients({}).ok());
  ASSERT_TRUE(ties_->ShareValues({}).ok());

  EXPECT_THAT(Gradient(0), Each(2.5f));
  EXPECT_THAT(Value(1), Each(7.0f));
  EXPECT_TRUE(ties_->Owns(0));
  EXPECT_FALSE(ties_->Owns(1));
}

TEST_F(TwoStages, SetWeightsReachesWhoBorrows) {
  Tensor value = Tensor::Allocate(DType::kF32, {9, 4});
  for (float& each : value.As<float>()) each = 3;

  for (const auto& engine : engines_) {
    ASSERT_TRUE(engine->SetWeights({{kShared, value}}).ok());
  }

  EXPECT_THAT(Value(0), Each(3.0f));
  EXPECT_THAT(Value(1), Each(3.0f));
}

TEST(Ties, ATokenOutsideOfTheVocabularyIsRefused) {
  PipelineRequest request = Gpt("gpipe", {0});
  request.model.vocabulary = 5;

  const auto outcome = RunPipeline(request);

  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status()));
  EXPECT_THAT(std::string(outcome.status().message()),
              HasSubstr("outside of the model's vocabulary of 5"));
}

}  // namespace
}  // namespace paceline
