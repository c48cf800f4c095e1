// Tests what every StageEngine promises to a member of a round group, for any
// implementation, as stage_engine_suite.h.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "core/optim/optimizer.h"
#include "tests/support/pipeline/stage_engine_suite.h"

namespace paceline {

class ParallelEngineSuite : public StageEngineSuite {
 protected:
  // A gpt of two blocks, whose head has the memory of its embedding.
  static EngineOptions Tied(bool flat) {
    ModelSpec model;
    model.name = "gpt";
    model.depth = 2;
    model.width = 8;
    model.heads = 2;
    EngineOptions options;
    options.model = DescribeModel(model, {4}, 7).value();
    options.layers = {0, static_cast<int>(options.model.layers.size())};
    options.train.seed = 7;
    options.train.batch = kSamples;
    options.train.micro_batch = kSamples;
    options.train.optimizer.name = "adamw";
    options.flat_gradient = flat;
    return options;
  }
  static TensorList Tokens() {
    Tensor tokens = Tensor::Allocate(DType::kI64, {kSamples, 4});
    Tensor labels = Tensor::Allocate(DType::kI64, {kSamples, 4});
    for (int64_t i = 0; i < kSamples * 4; ++i) {
      tokens.As<int64_t>()[i] = (3 * i + 1) % 7;
      labels.As<int64_t>()[i] = (3 * i + 4) % 7;
    }
    return {tokens, labels};
  }

  // The giver has the sum of both micro-batches of `batch`, the taker that of
  // one.
  struct Pair {
    std::unique_ptr<StageEngine> giver, taker;
  };
  Pair GiverAndTaker(const BatchInfo& batch) {
    Pair pair{Make(Parallel()), Make(Parallel())};
    Compute(*pair.giver, Parallel(), batch);
    Pass(*pair.taker, batch, InputOf(Parallel(), 5));
    return pair;
  }

  static bool IsZero(StageEngine& engine) {
    const absl::Span<float> sum = engine.FlatGradient().value();
    return std::all_of(sum.begin(), sum.end(),
                       [](float value) { return value == 0; });
  }
};

TEST_P(ParallelEngineSuite, GivesTheSameBytesAsWithGradientsApart) {
  const auto flat = Make(Parallel());
  const auto apart = Whole();

  const TrainedSteps with = Train(*flat, Parallel(), 0, 3);
  TrainedSteps without = Train(*apart, Options(), 0, 3);
  for (StepReport& report : without.reports) report.result_hash = 0;

  EXPECT_EQ(with.weights, without.weights);
  EXPECT_EQ(with.reports, without.reports);
}

TEST_P(ParallelEngineSuite, TheFlatGradientIsWhatIsReported) {
  const auto engine = Make(Parallel());
  const BatchInfo batch = Batch(BatchPhase::kTrain, 2);
  Compute(*engine, Parallel(), batch);

  const auto flat = engine->FlatGradient().value();
  const std::vector<size_t> offsets = engine->GradientOffsets();

  ASSERT_EQ(offsets.size(), static_cast<size_t>(Layers()) + 1);
  EXPECT_EQ(offsets.front(), 0u);
  EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
  EXPECT_EQ(offsets.back(), flat.size());
  double squares = 0;
  for (const float value : flat) squares += double{value} * value;
  double reported = 0;
  const StepReport report = engine->Report(batch).value();
  for (const double norm : report.squared_norms) {
    reported += norm;
  }
  EXPECT_GT(squares, 0);
  EXPECT_NEAR(squares, reported, 1e-9 * squares);
}

TEST_P(ParallelEngineSuite, AppliesWhatWasWrittenOverTheGradient) {
  const BatchInfo batch = Batch(BatchPhase::kTrain, 2);
  const auto [giver, taker] = GiverAndTaker(batch);

  const absl::Span<float> sum = giver->FlatGradient().value();
  std::copy(sum.begin(), sum.end(), taker->FlatGradient().value().begin());
  const auto report = taker->Report(batch).value();

  EXPECT_EQ(report.squared_norms, giver->Report(batch)->squared_norms);
  EXPECT_EQ(report.samples, kSamples) << "its own";
  ASSERT_TRUE(taker->Apply(Go()).ok());
  ASSERT_TRUE(giver->Apply(Go()).ok());
  EXPECT_EQ(StateOf(*taker), StateOf(*giver));
  EXPECT_TRUE(IsZero(*taker));
}

// Cut where no layer ends, so that a parameter lies across pieces.
TEST_P(ParallelEngineSuite, AppliesASumThatIsReadWhereItLies) {
  const BatchInfo batch = Batch(BatchPhase::kTrain, 2);
  const auto [giver, taker] = GiverAndTaker(batch);
  const absl::Span<const float> sum = giver->FlatGradient().value();
  std::vector<std::vector<float>> memory;
  std::vector<absl::Span<const float>> pieces;
  for (size_t begin = 0; begin < sum.size(); begin += 3) {
    const absl::Span<const float> piece = sum.subspan(begin, 3);
    memory.emplace_back(piece.begin(), piece.end());
  }
  pieces.assign(memory.begin(), memory.end());

  ASSERT_TRUE(taker->ReadSumFrom(pieces).ok());

  EXPECT_EQ(taker->Report(batch)->squared_norms,
            giver->Report(batch)->squared_norms);
  ASSERT_TRUE(taker->Apply(Go()).ok());
  ASSERT_TRUE(giver->Apply(Go()).ok());
  EXPECT_EQ(StateOf(*taker), StateOf(*giver));
  EXPECT_TRUE(IsZero(*taker));
  // The next step's sum is the engine's own.
  memory.clear();
  EXPECT_EQ(Train(*taker, Parallel(), 1, 2).reports,
            Train(*giver, Parallel(), 1, 2).reports);
}

TEST_P(ParallelEngineSuite, ASumThatIsReadIsForgottenWithItsStep) {
  const auto engine = Make(Parallel());
  const auto plain = Make(Parallel());
  const std::vector<uint8_t> state = StateOf(*engine);
  const std::vector<float> ones(engine->FlatGradient()->size(), 1);

  ASSERT_TRUE(engine->ReadSumFrom({ones}).ok());
  engine->AbandonStep();
  EXPECT_EQ(Train(*engine, Parallel(), 0, 1).reports,
            Train(*plain, Parallel(), 0, 1).reports);

  ASSERT_TRUE(engine->ReadSumFrom({ones}).ok());
  ASSERT_TRUE(RestoreWhole(*engine, state).ok());
  const auto fresh = Make(Parallel());
  EXPECT_EQ(Train(*engine, Parallel(), 0, 1).reports,
            Train(*fresh, Parallel(), 0, 1).reports);
}

TEST_P(ParallelEngineSuite, RefusesASumOfAnotherSize) {
  const auto engine = Make(Parallel());
  const std::vector<float> ones(engine->FlatGradient()->size() + 1, 1);

  EXPECT_TRUE(absl::IsInvalidArgument(engine->ReadSumFrom({ones})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      engine->ReadSumFrom({absl::MakeSpan(ones).first(3)})));
}

TEST_P(ParallelEngineSuite, TellsInTheBackwardWhatIsFinal) {
  const EngineOptions options = Parallel();
  const auto engine = Make(options);
  const absl::Span<float> flat = engine->FlatGradient().value();
  std::vector<size_t> begins;
  std::vector<std::vector<float>> seen;
  engine->StreamSum([&](size_t begin) {
    begins.push_back(begin);
    seen.emplace_back(flat.begin() + begin, flat.end());
  });

  Compute(*engine, options, Batch());

  ASSERT_FALSE(begins.empty());
  EXPECT_TRUE(std::is_sorted(begins.rbegin(), begins.rend()));
  EXPECT_EQ(begins.back(), 0);
  ASSERT_EQ(engine->FlatGradient()->data(), flat.data());
  for (const std::vector<float>& tail : seen) {
    EXPECT_TRUE(std::equal(tail.rbegin(), tail.rend(), flat.rbegin()));
  }
}

TEST_P(ParallelEngineSuite, AnEngineOfAPipelineIsNoMember) {
  const auto engine = Whole();

  EXPECT_TRUE(absl::IsFailedPrecondition(engine->FlatGradient().status()));
  EXPECT_TRUE(engine->GradientOffsets().empty());
  EXPECT_TRUE(absl::IsFailedPrecondition(engine->ReadSumFrom({})));
}

// Without TieExchange, to rounding what a pipeline of one stage does with it.
TEST_P(ParallelEngineSuite, SharedParametersStayEqualByThemselves) {
  const auto flat = Make(Tied(true));
  const auto apart = Make(Tied(false));
  const SharedParameter shared = SharedParameters(Tied(true).model).front();
  EXPECT_TRUE(absl::IsFailedPrecondition(
      flat->Tied(shared.name, /*owner=*/true).status()));

  for (int i = 0; i < 3; ++i) {
    const auto one = flat->Forward(Ordinal(i), 0, Tokens());
    const auto other = apart->Forward(Ordinal(i), 0, Tokens());
    ASSERT_TRUE(one.ok() && other.ok()) << one.status();
    EXPECT_NEAR(one->loss->loss, other->loss->loss, 1e-4) << i;
    ASSERT_TRUE(flat->Backward(Ordinal(i), 0, {}).ok());
    ASSERT_TRUE(apart->Backward(Ordinal(i), 0, {}).ok());
    TiedTensors owner = apart->Tied(shared.name, true).value();
    TiedTensors user = apart->Tied(shared.name, false).value();
    AddTo(owner.gradient.As<float>(), user.gradient.As<float>());
    const auto norms = flat->Report(Ordinal(i))->squared_norms;
    const auto expected = apart->Report(Ordinal(i))->squared_norms;
    ASSERT_EQ(norms.size(), expected.size());
    for (size_t n = 0; n < norms.size(); ++n) {
      EXPECT_NEAR(norms[n], expected[n], 1e-4 * (1 + expected[n])) << n;
    }
    ASSERT_TRUE(flat->Apply(Go()).ok());
    ASSERT_TRUE(apart->Apply(Go()).ok());
    std::copy_n(owner.value.As<float>().begin(), owner.value.As<float>().size(),
                user.value.As<float>().begin());
  }
}

}  // namespace paceline
