// Weight stashing on every class of models: a micro-batch's gradient is that
// of one process at the version that it went forward with.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/torch/in_process_pipeline.h"
#include "tests/torch/script_experiment.h"

namespace paceline {
namespace {

constexpr int kUpdates = 3;
constexpr int kLate = 5;  // the micro-batch that waits for its backward

// One stage with the whole model, driven a micro-batch at a time.
class Driven {
 public:
  Driven(const Experiment& experiment, bool stashes)
      : experiment_(experiment),
        stashes_(stashes),
        engine_(MakeStage(experiment, 0, 1, stashes)) {}

  void Forward(int micro_batch) {
    const int64_t samples = experiment_.job.train.micro_batch;
    const auto order = SampleOrder(1, 0, experiment_.set.samples);
    const auto result = engine_->Forward(
        BatchOf(micro_batch), 0,
        experiment_.set.Take(order, micro_batch * samples, samples));
    EXPECT_TRUE(result.ok()) << result.status();
  }

  StepReport Backward(int micro_batch) {
    const auto gradient = engine_->Backward(BatchOf(micro_batch), 0, {});
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    const auto report = engine_->Report(BatchOf(micro_batch));
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or(StepReport());
  }

  // The updates of the first micro-batches, each with its gradient alone.
  void Update(int updates) {
    for (int i = 0; i < updates; ++i) {
      if (stashes_) {
        EXPECT_TRUE(engine_->UseVersion(i).ok());
      }
      Forward(i);
      const StepReport report = Backward(i);
      if (stashes_) {
        EXPECT_TRUE(engine_->UseVersion(i + 1).ok());
      }
      EXPECT_TRUE(
          engine_->Apply(DecideStep(experiment_.job.train, 10, {report})).ok());
    }
  }

  // The weights that updates change; running statistics are of all
  // micro-batches seen.
  std::map<std::string, std::vector<float>> Weights() const {
    auto weights = WeightsOf(*engine_);
    std::erase_if(weights, [](const auto& named) {
      return absl::StrContains(named.first, "running_") ||
             absl::StrContains(named.first, "num_batches_tracked");
    });
    return weights;
  }

  StashReading Stash() const { return engine_->Stash(); }

 private:
  BatchInfo BatchOf(int micro_batch) const {
    BatchInfo batch;
    batch.ordinal = micro_batch;
    batch.samples = experiment_.job.train.micro_batch;
    return batch;
  }

  const Experiment experiment_;
  const bool stashes_;
  std::unique_ptr<StageEngine> engine_;
};

class StashOfModel : public ::testing::TestWithParam<const char*> {};

TEST_P(StashOfModel, TheGradientIsThatOfTheVersionThatWentForward) {
  const Experiment experiment = ExperimentOf(GetParam());
  Driven before(experiment, false), after(experiment, false);
  before.Forward(kLate);
  const StepReport at_first = before.Backward(kLate);
  after.Update(kUpdates);
  const auto weights = after.Weights();
  after.Forward(kLate);
  ASSERT_NE(at_first.result_hash, after.Backward(kLate).result_hash)
      << "the versions make a difference";

  Driven stashing(experiment, true);
  stashing.Forward(kLate);
  stashing.Update(kUpdates);

  EXPECT_EQ(stashing.Weights(), weights);
  EXPECT_EQ(stashing.Stash().versions, 2) << "the first and the newest";
  const StepReport late = stashing.Backward(kLate);
  EXPECT_EQ(late.result_hash, at_first.result_hash);
  EXPECT_EQ(late.squared_norms, at_first.squared_norms);
  EXPECT_EQ(stashing.Stash().versions, 1) << "freed when unused";
}

INSTANTIATE_TEST_SUITE_P(Models, StashOfModel,
                         ::testing::Values("mlp", "lenet", "vit", "resnet18",
                                           "vgg11", "gpt", "bert", "gnmt",
                                           kScriptModel),
                         kNameOfModel);

}  // namespace
}  // namespace paceline
