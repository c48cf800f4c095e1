#include "core/predict/time_predictor.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/predict/curves.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

TimePredictor Fitted() {
  std::vector<CurveRecipe> recipes;
  for (const char* op : {"gather", "reduce"}) {
    for (int hosts : {1, 2, 4}) {
      const double factor = hosts * (op[0] == 'g' ? 1 : 2);
      recipes.push_back(
          {{op, std::to_string(hosts)}, Affine(1e-5 * factor, 1e-9 * factor)});
    }
  }
  recipes.pop_back();  // reduce on 4 hosts
  return TimePredictor(MakeCurves({"op", "hosts"}, recipes));
}

TimeQuery Query(const std::string& op, const std::string& hosts, double size) {
  return {.size_column = "elements",
          .size = size,
          .features = {{"op", op}, {"hosts", hosts}}};
}

TEST(TimePredictor, SaysWhatItsAnswerStandsOn) {
  const TimePredictor predictor = Fitted();

  const auto basis = [&](const TimeQuery& query) {
    const auto prediction = predictor.Predict(query);
    EXPECT_TRUE(prediction.ok()) << prediction.status();
    EXPECT_LE(prediction->low_seconds, prediction->seconds);
    EXPECT_GE(prediction->high_seconds, prediction->seconds);
    return TimeBasisName(prediction->basis);
  };

  EXPECT_EQ(basis(Query("gather", "2", 1024)), "measured");
  EXPECT_EQ(basis(Query("gather", "2", 1000)), "inside");
  EXPECT_EQ(basis(Query("gather", "2", 1e9)), "outside");
  EXPECT_EQ(basis(Query("reduce", "4", 1000)), "unseen");
}

TEST(TimePredictor, FindsACurveByAnySpellingOfItsNumbers) {
  const TimePredictor predictor = Fitted();

  EXPECT_EQ(predictor.Predict(Query("gather", "2.0", 64))->basis,
            TimeBasis::kMeasured);
}

TEST(TimePredictor, ForetellsACurveThatWasNeverMeasured) {
  const auto prediction = Fitted().Predict(Query("reduce", "4", 1024));

  ASSERT_TRUE(prediction.ok()) << prediction.status();
  const double truth = 8 * (1e-5 + 1.024e-6);
  EXPECT_LT(prediction->low_seconds, truth);
  EXPECT_GT(prediction->high_seconds, truth);
  EXPECT_NEAR(prediction->seconds, truth, 0.3 * truth);
}

TEST(TimePredictor, RefusesWhatItCannotKnow) {
  const TimePredictor predictor = Fitted();
  const auto message = [&](const TimeQuery& query, absl::StatusCode code) {
    const auto prediction = predictor.Predict(query);
    EXPECT_EQ(prediction.status().code(), code) << prediction.status();
    return std::string(prediction.status().message());
  };
  TimeQuery colour = Query("gather", "2", 1);
  colour.features.emplace_back("colour", "red");
  TimeQuery twice = Query("gather", "2", 1);
  twice.features.emplace_back("op", "reduce");
  TimeQuery flops = Query("gather", "2", 1);
  flops.size_column = "flops";

  constexpr absl::StatusCode kWrong = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(message(colour, kWrong),
              HasSubstr("no measurement has a column 'colour'; there are op, "
                        "hosts"));
  EXPECT_THAT(message(twice, kWrong), HasSubstr("'op' is given twice"));
  for (const double size : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(message(Query("gather", "2", size), kWrong),
                HasSubstr("need a finite number from 0 up"));
  }
  EXPECT_THAT(message(flops, absl::StatusCode::kNotFound),
              HasSubstr("nothing was measured over flops"));
}

}  // namespace
}  // namespace paceline
