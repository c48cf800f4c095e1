#include "core/predict/layer_predictor.h"

#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

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
  return Value(LayerPredictor::Fit(std::move(records)));
}

LayerPrediction Predicted(const LayerPredictor& predictor,
                          const LayerWork& work) {
  return Value(predictor.Predict(work));
}

double ErrorOf(const LayerPrediction& prediction, const LayerWork& work) {
  return std::abs(prediction.seconds - Truth(work)) / Truth(work);
}

TEST(LayerPredictor, ForetellsAnotherBatchOfAMeasuredKind) {
  const LayerPredictor predictor =
      Fitted(World({"linear", "conv2d", "norm"}, {"fast", "slow"}));

  for (const double batch : {2, 8, 32}) {
    const LayerWork work = Work("conv2d", "slow", batch, 512);
    const LayerPrediction prediction = Predicted(predictor, work);

    EXPECT_EQ(prediction.level, LayerLevel::kSameKey);
    EXPECT_LT(ErrorOf(prediction, work), 0.15) << "batch " << batch;
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
    EXPECT_LT(ErrorOf(prediction, work), 0.4) << LayerLevelName(level);
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
  EXPECT_LT(ErrorOf(prediction, work), 0.4);
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

TEST(LayerPredictor, RefusesRecordsAndWorkThatAreNone) {
  constexpr absl::StatusCode kWrong = absl::StatusCode::kInvalidArgument;
  const LayerWork good = Work("conv2d", "b", 1, 128);
  LayerWork flops = good, bytes = good, threads = good;
  flops.flops = -1;
  bytes.bytes = std::nan("");
  threads.threads = 0;
  const std::pair<LayerRecord, const char*> kBad[] = {
      {{good, 0}, "kind 'conv2d' on 'b': seconds is 0"},
      {{good, -1}, "seconds is -1"},
      {{good, std::nan("")}, "seconds is nan"},
      {{good, HUGE_VAL}, "seconds is inf"},
      {{flops, 1}, "flops is -1, need"},
      {{bytes, 1}, "bytes is nan, need"},
      {{threads, 1}, "threads is 0, need at least 1"}};
  for (const auto& [record, why] : kBad) {
    std::vector<LayerRecord> records = World({"linear"}, {"a"});
    records.push_back(record);
    ExpectError(LayerPredictor::Fit(records).status(), kWrong, HasSubstr(why));
  }
  ExpectError(LayerPredictor::Fit({}).status(), kWrong,
              HasSubstr("no layer was measured"));
  ExpectError(Fitted(World({"linear"}, {"a"})).Predict(threads).status(),
              kWrong, HasSubstr("threads is 0"));
}

}  // namespace
}  // namespace paceline
