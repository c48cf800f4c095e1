#include "core/predict/layer_predictor.h"

#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

struct KindRate {
  const char* kind;
  double flops_a_second;
};
constexpr KindRate kKinds[] = {
    {"linear", 5e10}, {"conv2d", 3e10}, {"attention", 2e10}, {"norm", 2e9}};

// A world with a floor, a rate a kind, and a speed a device.
double Truth(const LayerWork& work) {
  double rate = 1e10;
  for (const KindRate& kind : kKinds) {
    if (work.kind == kind.kind) rate = kind.flops_a_second;
  }
  const double speed = work.device == "fast"   ? 2
                       : work.device == "slow" ? 0.5
                                               : 1;
  const double pass = work.pass == LayerPass::kBackward ? 2 : 1;
  return 2e-6 + pass * (work.flops / rate + work.bytes / 2e10) /
                    (speed * std::pow(work.threads, 0.8));
}

LayerWork Work(const std::string& kind, const std::string& device, double batch,
               double width) {
  return {.kind = kind,
          .dtype = "f32",
          .device = device,
          .flops = batch * width * width,
          .bytes = 4 * (batch * width + width * width)};
}

// Noise of at most 5 %, the same in every run.
double Noise(int seed) { return 1 + 0.05 * std::sin(12.9898 * seed * seed); }

std::vector<LayerRecord> World(const std::vector<std::string>& kinds,
                               const std::vector<std::string>& devices) {
  std::vector<LayerRecord> records;
  for (const std::string& device : devices) {
    for (const std::string& kind : kinds) {
      for (const LayerPass pass : {LayerPass::kForward, LayerPass::kBackward}) {
        for (const double batch : {1, 4, 16, 64}) {
          for (const double width : {128, 512, 1024}) {
            LayerWork work = Work(kind, device, batch, width);
            work.pass = pass;
            records.push_back(
                {work, Truth(work) * Noise(static_cast<int>(records.size()))});
          }
        }
      }
    }
  }
  return records;
}

LayerPredictor Fitted(std::vector<LayerRecord> records) {
  auto predictor = LayerPredictor::Fit(std::move(records));
  EXPECT_TRUE(predictor.ok()) << predictor.status();
  return *std::move(predictor);
}

LayerPrediction Predicted(const LayerPredictor& predictor,
                          const LayerWork& work) {
  const auto prediction = predictor.Predict(work);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return *prediction;
}

double RelativeError(const LayerPrediction& prediction, const LayerWork& work) {
  return std::abs(prediction.seconds - Truth(work)) / Truth(work);
}

TEST(LayerPredictor, ForetellsAnotherBatchOfAMeasuredKind) {
  const LayerPredictor predictor =
      Fitted(World({"linear", "conv2d", "norm"}, {"fast", "slow"}));

  for (const double batch : {2, 8, 32}) {
    const LayerWork work = Work("conv2d", "slow", batch, 512);
    const LayerPrediction prediction = Predicted(predictor, work);

    EXPECT_EQ(prediction.level, LayerLevel::kSameKey);
    EXPECT_LT(RelativeError(prediction, work), 0.15) << "batch " << batch;
  }
}

TEST(LayerPredictor, ForetellsWhatIsFurtherOff) {
  const LayerPredictor predictor =
      Fitted(World({"linear", "conv2d", "norm"}, {"fast", "middle", "slow"}));
  LayerWork threads = Work("conv2d", "fast", 16, 512);
  threads.threads = 2;
  const std::pair<LayerWork, LayerLevel> works[] = {
      {Work("linear", "fast", 128, 2048), LayerLevel::kSameKey},
      {threads, LayerLevel::kSameKind},
      {Work("linear", "new", 16, 1024), LayerLevel::kAllDevices}};
  for (const auto& [work, level] : works) {
    const LayerPrediction prediction = Predicted(predictor, work);

    EXPECT_EQ(prediction.level, level) << LayerLevelName(level);
    EXPECT_LT(RelativeError(prediction, work), 0.4) << LayerLevelName(level);
  }
}

TEST(LayerPredictor, TakesAKindFromOtherDevicesWhenNewOnThisOne) {
  std::vector<LayerRecord> records =
      World({"linear", "conv2d", "norm"}, {"fast", "middle", "slow"});
  std::erase_if(records, [](const LayerRecord& record) {
    return record.work.kind == "norm" && record.work.device == "slow";
  });
  const LayerWork work = Work("norm", "slow", 16, 512);

  const LayerPrediction prediction = Predicted(Fitted(records), work);

  EXPECT_EQ(prediction.level, LayerLevel::kSameDevice);
  EXPECT_LT(RelativeError(prediction, work), 0.4);
}

TEST(LayerPredictor, HoldsAKindNeverMeasuredAnywhereInAWideInterval) {
  const LayerPredictor predictor =
      Fitted(World({"linear", "conv2d", "norm"}, {"fast", "slow"}));
  const LayerWork unseen = Work("attention", "fast", 16, 512);
  const LayerWork seen = Work("linear", "fast", 16, 512);

  const LayerPrediction guess = Predicted(predictor, unseen);
  const LayerPrediction known = Predicted(predictor, seen);

  EXPECT_EQ(guess.level, LayerLevel::kNewKind);
  EXPECT_LT(guess.low_seconds, Truth(unseen));
  EXPECT_GT(guess.high_seconds, Truth(unseen));
  EXPECT_GT(guess.high_seconds / guess.seconds,
            known.high_seconds / known.seconds);
}

TEST(LayerPredictor, HoldsMostUnmeasuredBatchesInItsIntervals) {
  const LayerPredictor predictor =
      Fitted(World({"linear", "conv2d", "norm"}, {"fast", "slow"}));
  int held = 0;
  int tried = 0;
  for (const char* kind : {"linear", "conv2d", "norm"}) {
    for (const double batch : {2, 3, 6, 8, 12, 24, 32, 48}) {
      for (const double width : {192, 256, 384, 768}) {
        const LayerWork work = Work(kind, "fast", batch, width);
        const LayerPrediction prediction = Predicted(predictor, work);
        held += prediction.low_seconds <= Truth(work) &&
                Truth(work) <= prediction.high_seconds;
        ++tried;
      }
    }
  }

  EXPECT_GE(held, 0.85 * tried);
}

TEST(LayerPredictor, WidensItsIntervalAwayFromWhatItHasSeen) {
  const LayerPredictor predictor = Fitted(World({"linear"}, {"fast"}));
  const auto width = [&](double batch) {
    const LayerPrediction prediction =
        Predicted(predictor, Work("linear", "fast", batch, 512));
    return prediction.high_seconds / prediction.low_seconds;
  };

  EXPECT_GT(width(1e6), width(16));
}

TEST(LayerPredictor, GivesTheSameBytesInAnyOrderOfRecords) {
  std::vector<LayerRecord> records = World({"linear", "norm"}, {"a", "b"});
  std::vector<LayerRecord> reversed(records.rbegin(), records.rend());
  const LayerWork work = Work("linear", "a", 5, 300);

  const LayerPrediction one = Predicted(Fitted(records), work);
  const LayerPrediction other = Predicted(Fitted(reversed), work);

  EXPECT_EQ(one.seconds, other.seconds);
  EXPECT_EQ(one.high_seconds, other.high_seconds);
}

TEST(LayerPredictor, AnswersFromASingleRecord) {
  const LayerWork work = Work("linear", "only", 16, 512);
  const LayerPredictor predictor = Fitted({{work, 1e-3}});

  const LayerPrediction same = Predicted(predictor, work);
  const LayerPrediction twice =
      Predicted(predictor, Work("linear", "only", 32, 512));

  EXPECT_NEAR(same.seconds, 1e-3, 1e-5);
  EXPECT_GT(twice.seconds, same.seconds);
  EXPECT_LT(twice.seconds, 2.5 * same.seconds);
}

TEST(LayerPredictor, TakesLayersWithoutFlopsOrBytes) {
  std::vector<LayerRecord> records = World({"linear"}, {"a"});
  LayerWork reshape = Work("reshape", "a", 0, 0);
  for (int i = 0; i < 4; ++i) records.push_back({reshape, 1e-6 * Noise(i)});

  EXPECT_NEAR(Predicted(Fitted(records), reshape).seconds, 1e-6, 3e-7);
}

std::string FitErrorOf(const LayerRecord& bad) {
  std::vector<LayerRecord> records = World({"linear"}, {"a"});
  records.push_back(bad);
  const auto predictor = LayerPredictor::Fit(records);
  EXPECT_EQ(predictor.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(predictor.status().message());
}

TEST(LayerPredictor, RefusesRecordsThatAreNoMeasurements) {
  const LayerWork good = Work("conv2d", "b", 1, 128);
  for (const double seconds : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(FitErrorOf({good, seconds}),
                HasSubstr("kind 'conv2d' on 'b': seconds is"));
  }
  LayerWork bad = good;
  bad.flops = -1;
  EXPECT_THAT(FitErrorOf({bad, 1}), HasSubstr("flops is -1, need"));
  bad = good;
  bad.bytes = std::nan("");
  EXPECT_THAT(FitErrorOf({bad, 1}), HasSubstr("bytes is nan, need"));
  bad = good;
  bad.threads = 0;
  EXPECT_THAT(FitErrorOf({bad, 1}), HasSubstr("threads is 0, need at least 1"));
}

TEST(LayerPredictor, RefusesToFitNothing) {
  EXPECT_THAT(std::string(LayerPredictor::Fit({}).status().message()),
              HasSubstr("no layer was measured"));
}

TEST(LayerPredictor, RefusesWorkThatIsNone) {
  const LayerPredictor predictor = Fitted(World({"linear"}, {"a"}));
  LayerWork bad = Work("linear", "a", 1, 128);

  bad.threads = -2;
  EXPECT_EQ(predictor.Predict(bad).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace paceline
