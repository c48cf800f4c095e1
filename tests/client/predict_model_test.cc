#include "client/commands/predict_model.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/measure_fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct PredictBed : CommandBed {
  explicit PredictBed(OutputFormat format = OutputFormat::kJson)
      : CommandBed(format) {
    measure.workers = IdleWorkers({"w1", "w2"});
    for (const int64_t batch : {4, 8, 16, 32}) {
      measure.AddProfile(ProfileOf(LenetSpec(batch), "w1", 1e-4 * batch));
    }
  }
  ExitCode Run(int64_t batch, const std::string& device) {
    return PredictModelCommand(context, measure, LenetSpec(batch),
                               {.batch = batch, .device = device});
  }

  FakeMeasureClient measure;
};

TEST(PredictModel, PredictsWhatWasNeverMeasuredWithAnInterval) {
  PredictBed bed;

  ASSERT_EQ(bed.Run(64, "w1"), kExitOk);

  const json device = bed.Output()["devices"][0];
  EXPECT_EQ(device["device"], "w1");
  EXPECT_TRUE(device["total_measured_seconds"].is_null());
  EXPECT_TRUE(device["independent"]);
  for (const json& layer : device["layers"]) {
    EXPECT_LE(layer["forward_low_seconds"], layer["forward_seconds"]);
    EXPECT_GE(layer["forward_high_seconds"], layer["forward_seconds"]);
    EXPECT_TRUE(layer["forward_measured_seconds"].is_null());
    EXPECT_TRUE(layer["backward_level"].is_string());
  }
}

TEST(PredictModel, StandsNextToWhatWasMeasuredWithoutHavingSeenIt) {
  PredictBed bed;
  // Nobody else says that a micro-batch of 16 takes ten times as long.
  bed.measure.AddProfile(ProfileOf(LenetSpec(16), "w1", 1e-2));

  ASSERT_EQ(bed.Run(16, "w1"), kExitOk);

  const json device = bed.Output()["devices"][0];
  EXPECT_TRUE(device["independent"]);
  EXPECT_EQ(device["layers"][0]["forward_measured_seconds"], 1e-2);
  EXPECT_LT(device["total_seconds"],
            device["total_measured_seconds"].get<double>() / 3);
}

// The column was called "measured", of the wall here and of the CPU there.
TEST(PredictModel, SaysWhoseSecondsItPrints) {
  for (const double share : {1.0, 0.4}) {
    PredictBed table(OutputFormat::kTable), document;
    for (PredictBed* bed : {&table, &document}) {
      DeviceProfile profile = ProfileOf(LenetSpec(16), "w1", 1e-2);
      profile.cpu_share = share;
      for (LayerMeasurement& layer : profile.layers) layer.forward.cpu = 4e-3;
      bed->measure.AddProfile(profile);
      ASSERT_EQ(bed->Run(16, "w1"), kExitOk);
    }

    const json device = document.Output()["devices"][0];
    const bool of_cpu = share < 1;
    EXPECT_EQ(device["clock"], of_cpu ? "cpu" : "wall");
    EXPECT_EQ(device["layers"][0]["forward_measured_seconds"],
              of_cpu ? 4e-3 : 1e-2);
    EXPECT_THAT(table.out.str(),
                HasSubstr(of_cpu ? "MEASURED CPU MS" : "MEASURED WALL MS"));
  }
}

TEST(PredictModel, SaysWhenOnlyTheMeasurementItselfIsThere) {
  PredictBed bed;
  bed.measure.measurements = Measurements();
  bed.measure.AddProfile(ProfileOf(LenetSpec(16), "w1", 1e-3));

  ASSERT_EQ(bed.Run(16, "w1"), kExitOk);

  EXPECT_FALSE(bed.Output()["devices"][0]["independent"]);
}

TEST(PredictModel, PredictsForAllThatAreAttachedOrWereMeasured) {
  PredictBed bed;

  ASSERT_EQ(bed.Run(16, ""), kExitOk);

  const json devices = bed.Output()["devices"];
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0]["device"], "w1");
  EXPECT_EQ(devices[1]["device"], "w2");
}

TEST(PredictModel, IsATableWithTotals) {
  PredictBed bed(OutputFormat::kTable);

  ASSERT_EQ(bed.Run(16, "w1"), kExitOk);

  EXPECT_THAT(bed.out.str(), HasSubstr("FORWARD WALL MS"));
  EXPECT_THAT(bed.out.str(), HasSubstr("a micro-batch predicted, "));
}

TEST(PredictModel, DoesNotFindAnUnknownDevice) {
  PredictBed bed;

  EXPECT_EQ(bed.Run(16, "w9"), kExitNotFound);

  EXPECT_THAT(bed.err.str(), HasSubstr("w9"));
  EXPECT_THAT(bed.err.str(), HasSubstr("known are: w1, w2"));
}

TEST(PredictModel, FindsNothingBeforeAnythingWasMeasured) {
  PredictBed bed;
  bed.measure.measurements = Measurements();

  EXPECT_EQ(bed.Run(16, "w1"), kExitNotFound);

  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(),
              HasSubstr("paceline profile --model lenet --batch 16"));
}

}  // namespace
}  // namespace paceline
