// Floats that go beside activations, in whole pipelines without LibTorch: their
// gradients come back, whatever lies between.
#include <memory>
#include <utility>
#include <vector>

#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_engine.h"
#include "tests/support/pipeline_harness.h"
#include "tests/support/schedule_builder.h"
#include "tests/support/wrapped_engine.h"
#include "tests/worker/fake_pipeline.h"
#include "worker/data/open.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Eight layers.
PipelineRequest Gnmt(const std::string& schedule, std::vector<int> worker_of) {
  ModelSpec model = DefaultModel("gnmt");
  model.depth = 2;
  model.width = 3;
  return FakePipeline(SmallTokenJob(model, 12), schedule, std::move(worker_of));
}

TEST(Beside, EndsWithTheSameBytesAtAnyCutScheduleAndPlacement) {
  const auto alone = RunPipeline(Gnmt("gpipe", {0}));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_LT(alone->steps.back().loss, alone->steps.front().loss);

  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved-1f1b", "zero-bubble"}) {
    for (const std::vector<int>& worker_of : {std::vector<int>{0, 0},
                                              {0, 1},
                                              {0, 1, 2, 3},
                                              {0, 1, 0, 1},
                                              {0, 1, 2, 3, 4, 5, 6, 7}}) {
      if (!IsMadeFor(schedule, 5, worker_of)) continue;
      const auto outcome = RunPipeline(Gnmt(schedule, worker_of));

      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->weights, alone->weights)
          << schedule << " on " << worker_of.size() << " stages";
    }
  }
}

// Hears what comes back over each boundary, and drops the last of it.
class Dropping final : public WrappedEngine {
 public:
  using WrappedEngine::WrappedEngine;

  absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                      TensorList gradient) override {
    if (gradient.size() > 1) gradient.pop_back();
    return WrappedEngine::Backward(batch, micro_batch, std::move(gradient));
  }
};

TEST(Beside, AGradientTooFewIsRefused) {
  PipelineRequest request = Gnmt("gpipe", {0, 1, 2, 3, 4, 5, 6, 7});
  request.make_engine = [](const EngineOptions& options)
      -> absl::StatusOr<std::unique_ptr<StageEngine>> {
    return std::make_unique<Dropping>(options);
  };

  const auto outcome = RunPipeline(request);

  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status())) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()),
              HasSubstr("need 2 F32 gradients"));
}

TEST(Beside, ATokenOutsideOfTheVocabularyIsRefused) {
  PipelineRequest request = Gnmt("gpipe", {0});
  request.model.vocabulary = 5;

  const auto outcome = RunPipeline(request);

  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status()));
  EXPECT_THAT(std::string(outcome.status().message()),
              HasSubstr("outside of the model's vocabulary of 5"));
}

// Between encoder and decoder: a float beside the activation.
TEST(Beside, EachFloatHasAGradientThatIsNotZero) {
  const PipelineRequest request = Gnmt("gpipe", {0});
  constexpr int kAttention = 5;
  FakeEngine first({request.model, {0, kAttention}, request.spec.train, 0, 2});
  FakeEngine last({request.model, {kAttention, 8}, request.spec.train, 1, 2});
  const auto source = OpenBatchSource(request.spec);
  ASSERT_TRUE(source.ok()) << source.status();
  const BatchInfo batch = **(*source)->NextBatch();

  auto forward = first.Forward(batch, 0, *(*source)->NextMicroBatch());
  ASSERT_TRUE(forward.ok()) << forward.status();
  ASSERT_THAT(forward->output, SizeIs(4)) << "activation, mask, memory, labels";
  ASSERT_TRUE(last.Forward(batch, 0, std::move(forward->output)).ok());
  const auto gradients = last.Backward(batch, 0, {});

  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_THAT(*gradients, SizeIs(2));
  for (const Tensor& gradient : *gradients) {
    EXPECT_EQ(gradient.shape, (Shape{5, 6, 3}));
    EXPECT_NE(gradient.As<float>()[0], 0);
  }
}

}  // namespace
}  // namespace paceline
