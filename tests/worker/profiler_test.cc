#include "worker/profile/profiler.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/pipeline/fake_engine.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"
#include "worker/meters/cpu.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Takes 1 ms a layer forward and 2 ms backward on the test's clock, half of it
// CPU, and keeps 100 bytes a layer.
class TimedEngine final : public FakeEngine {
 public:
  TimedEngine(EngineOptions options, FakeClock& clock, absl::Duration& cpu,
              Tensor& input)
      : FakeEngine(options),
        options_(std::move(options)),
        clock_(clock),
        cpu_(cpu),
        input_(input) {}

  absl::StatusOr<ForwardResult> Forward(const BatchInfo&, int,
                                        TensorList input) override {
    EXPECT_THAT(input, SizeIs(2));
    input_ = input[0];
    for (int i = options_.layers.first; i < options_.layers.last; ++i) {
      Spend(absl::Milliseconds(1));
      const int done = i - options_.layers.first + 1;
      options_.on_layer({i, false, 100 * done});
    }
    Spend(absl::Milliseconds(5));  // the loss, or nothing's owner
    return ForwardResult{};
  }
  absl::StatusOr<TensorList> Backward(const BatchInfo&, int,
                                      TensorList gradient) override {
    gradients_ += static_cast<int>(gradient.size());
    ++backwards_;
    for (int i = options_.layers.last; i-- > options_.layers.first;) {
      Spend(absl::Milliseconds(2));
      options_.on_layer({i, true, 0});
    }
    return TensorList{};
  }
  absl::StatusOr<StepReport> Report(const BatchInfo& batch) override {
    EXPECT_EQ(std::exchange(backwards_, 0), 4) << "micro-batches of a step";
    EXPECT_EQ(batch.samples, 4 * options_.train.micro_batch);
    Spend(absl::Milliseconds(3));
    return StepReport{};
  }
  absl::Status Apply(const StepVerdict& verdict) override {
    EXPECT_FALSE(verdict.skip);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<NamedTensor>> Weights() override {
    return std::vector<NamedTensor>{};
  }
  absl::Status SetWeights(const std::vector<NamedTensor>&) override {
    return absl::OkStatus();
  }

 private:
  void Spend(absl::Duration wall) {
    clock_.Advance(wall);
    cpu_ += wall / 2;
  }

  const EngineOptions options_;
  FakeClock& clock_;
  absl::Duration& cpu_;
  Tensor& input_;  // of the last forward
  int gradients_ = 0;
  int backwards_ = 0;  // since the last report
};

class ProfilerTest : public testing::Test {
 protected:
  absl::StatusOr<DeviceProfile> Profile(const ModelDescription& model,
                                        int64_t memory_bytes = 0) {
    const ProfilerParts parts{[this](const EngineOptions& options) {
                                ranges_.push_back(options.layers);
                                return std::make_unique<TimedEngine>(
                                    options, clock_, cpu_, input_);
                              },
                              clock_, [this] { return cpu_; }, cancel_};
    return ProfileLayers(spec_, model, memory_bytes, options_, parts);
  }

  JobSpec spec_ = [] {
    JobSpec spec;
    spec.train.micro_batch = 2;
    return spec;
  }();
  ProfilerOptions options_{.least_runs = 4};
  FakeClock clock_;
  absl::Duration cpu_;
  Tensor input_;
  CancelToken cancel_;
  std::vector<LayerRange> ranges_;
};

// The layers have 100, 200 and 300 bytes.
TEST_F(ProfilerTest, TellsLayersAndDirectionsApart) {
  const DeviceProfile profile = Value(Profile(SmallModel(3)));
  const std::vector<LayerMeasurement>& layers = profile.layers;

  ASSERT_THAT(layers, SizeIs(3));
  const LayerMeasurement& middle = layers[1];
  EXPECT_NEAR(middle.forward.wall, 0.001, 1e-9);
  EXPECT_NEAR(middle.forward.cpu, 0.0005, 1e-9);
  EXPECT_NEAR(middle.backward.wall, 0.002, 1e-9);
  EXPECT_NEAR(middle.forward.spread, 0, 1e-9);
  EXPECT_EQ(middle.name, "layer1");
  EXPECT_EQ(middle.kept_bytes, 100) << "as allocated";
  EXPECT_NEAR(middle.update_seconds, 0.0005, 1e-9)
      << "CPU time, by its parameters";
  EXPECT_NEAR(layers[2].update_seconds, 0.00075, 1e-9);
  EXPECT_NEAR(layers[2].forward.wall, 0.006, 1e-9) << "with the loss";
  EXPECT_EQ(layers[0].output_bytes, 8);
  EXPECT_NEAR(profile.cpu_share, 0.5, 1e-6) << "of the thread";
}

// Over noise max-pooling would take longer than over what it will see.
TEST_F(ProfilerTest, TakesImagesThatAreSmoothAndHalfEmpty) {
  ModelDescription model = SmallModel(2);
  model.input = {1, 28, 28};
  ASSERT_TRUE(Profile(model).ok());

  const absl::Span<const float> values = input_.As<float>();
  ASSERT_THAT(values, SizeIs(2 * 28 * 28));
  int empty = 0;
  double steps = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    empty += values[i] == 0;
    steps += std::abs(values[i] - values[i - 1]);
    EXPECT_LE(values[i], 1);
  }
  EXPECT_NEAR(empty, 784, 400);
  EXPECT_LT(steps / 1568, 0.15) << "noise: 0.33";
  EXPECT_NE(std::vector<float>(values.begin(), values.begin() + 784),
            std::vector<float>(values.begin() + 784, values.end()))
      << "each its own image";
}

TEST_F(ProfilerTest, StopsAtItsBudgetButNotBeforeTheLeastRuns) {
  options_.budget = absl::ZeroDuration();

  EXPECT_EQ(Value(Profile(SmallModel(2))).runs, options_.least_runs);
}

TEST_F(ProfilerTest, MeasuresInRunsWhatDoesNotFitAtOnce) {
  ModelDescription model = SmallModel(4);
  for (Layer& layer : model.layers) layer.parameter_bytes = 1000;

  EXPECT_THAT(Value(Profile(model, 5000)).layers, SizeIs(4));
  EXPECT_THAT(ranges_,
              testing::ElementsAre(LayerRange{0, 2}, LayerRange{2, 4}));
}

TEST_F(ProfilerTest, RefusesALayerThatDoesNotFitAlone) {
  ModelDescription model = SmallModel(2);
  model.layers[1].parameter_bytes = 1'000'000;

  const auto layers = Profile(model, 5000);

  EXPECT_TRUE(absl::IsResourceExhausted(layers.status()));
  EXPECT_THAT(std::string(layers.status().message()), HasSubstr("layer1"));
}

TEST_F(ProfilerTest, EndsWhenCancelled) {
  cancel_.Cancel(absl::CancelledError("enough"));

  EXPECT_TRUE(absl::IsCancelled(Profile(SmallModel(2)).status()));
}

DeviceProfile ProfileOnTheFakeEngine(const JobSpec& spec,
                                     const ModelDescription& model,
                                     int64_t memory_bytes) {
  const SystemClock clock;
  const CancelToken cancel;
  return Value(ProfileLayers(spec, model, memory_bytes,
                             {.least_runs = 2, .budget = absl::ZeroDuration()},
                             {[](const EngineOptions& options) {
                                return std::make_unique<FakeEngine>(options);
                              },
                              clock, ThreadCpuTime, cancel}));
}

TEST(ProfileLayers, RunsOnTheFakeEngine) {
  JobSpec spec;
  spec.model.name = "mlp";
  spec.model.hidden = {4};
  spec.train.micro_batch = 3;
  const auto model = DescribeModel(spec.model, {1, 3, 3}, 10);

  const DeviceProfile profile = ProfileOnTheFakeEngine(spec, *model, 0);

  EXPECT_EQ(profile.layers.size(), model->layers.size());
  EXPECT_EQ(profile.runs, 2);
  EXPECT_GT(profile.layers[0].kept_bytes, 0);  // the description's
}

// In runs of a few layers, so that what goes beside comes in and goes out.
TEST(ProfileLayers, GivesAGradientForEachFloatThatCrosses) {
  JobSpec spec;
  spec.model = DefaultModel("gnmt");
  spec.train.micro_batch = 2;
  const auto model = Value(DescribeModel(spec.model, {8}, 20));

  for (const int64_t memory : {int64_t{6} << 20, int64_t{0}}) {
    const auto layers = ProfileOnTheFakeEngine(spec, model, memory).layers;

    EXPECT_EQ(layers.size(), model.layers.size());
    EXPECT_EQ(layers[1].kind, "bidirectional_lstm");
  }
}

// Every reading costs 10 us; after 2 ms of them come 3 ms of pause, if at all.
class StoppedClock final : public Clock {
 public:
  explicit StoppedClock(bool stopped) : stopped_(stopped) {}

  Instant Now() const override {
    now_ += absl::Microseconds(10);
    if (stopped_ && ++readings_ % 200 == 0) now_ += absl::Milliseconds(3);
    return {now_};
  }
  absl::Time Today() const override { return absl::UnixEpoch(); }

 private:
  const bool stopped_;
  mutable absl::Duration now_;
  mutable int64_t readings_ = 0;
};

TEST(MeasurePausePeriod, FindsHowOftenAThreadIsStopped) {
  EXPECT_NEAR(MeasurePausePeriod(StoppedClock(true)), 0.005, 2e-4);
  EXPECT_EQ(MeasurePausePeriod(StoppedClock(false)), 0);
}

}  // namespace
}  // namespace paceline
