#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/commands/predict_fit.h"
#include "client/options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(
      testing::TempDir(), "/",
      testing::UnitTest::GetInstance()->current_test_info()->name(), name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// Four curves of 12 sizes, a latency and a bandwidth.
std::string Measurements() {
  std::string text = "op,dtype,elements,seconds\n";
  for (const char* op : {"gather", "reduce"}) {
    for (const int bytes : {2, 4}) {
      for (int e = 0; e < 12; ++e) {
        const double elements = e == 0 ? 0 : std::exp2(2 * e);
        const double factor = op[0] == 'g' ? 1 : 1.7;
        absl::StrAppend(&text, op, ",f", 8 * bytes, ",", elements, ",",
                        factor * (1e-5 + 1e-10 * bytes * elements), "\n");
      }
    }
  }
  return text;
}

// A bed with the measurements in a file.
struct PredictBed : CommandBed {
  explicit PredictBed(OutputFormat format = OutputFormat::kJson)
      : CommandBed(format) {}
  ExitCode Fit(const std::vector<std::string>& at = {},
               const std::vector<std::string>& more_files = {}) {
    std::vector<std::string> files = {WriteFile(".csv", text)};
    files.insert(files.end(), more_files.begin(), more_files.end());
    return PredictFitCommand(console, {.files = files, .at = at});
  }

  std::string text = Measurements();
};

std::string ErrorOf(const std::string& path) {
  CommandBed bed(OutputFormat::kJson);
  EXPECT_EQ(PredictFitCommand(bed.console, {.files = {path}, .at = {}}),
            kExitUsage);
  EXPECT_EQ(bed.out.str(), "");
  return bed.err.str();
}

TEST(Predict, PrintsItsErrorAsOneDocument) {
  PredictBed bed;

  ASSERT_EQ(bed.Fit(), kExitOk);

  const json document = bed.Output();
  EXPECT_EQ(document["points"], 4 * 10);
  EXPECT_LT(document["mean_relative_error"], 0.01);
  EXPECT_LT(document["median_relative_error"], 0.01);
  EXPECT_LT(document["line"]["mean_relative_error"], 0.01);
  EXPECT_EQ(document["heldout_curves"]["curves"], 4);
  EXPECT_EQ(document["heldout_curves"]["points"], 4 * 12);
  EXPECT_LT(document["heldout_curves"]["median_relative_error"], 0.5);
  int64_t points = 0;
  for (const json& decade : document["decades"]) {
    EXPECT_EQ(decade["size"], "elements");
    EXPECT_LT(decade["from"], decade["to"]);
    EXPECT_TRUE(decade["line"].contains("median_relative_error"));
    points += decade["points"].get<int64_t>();
  }
  EXPECT_EQ(points, 40);
}

TEST(Predict, PrintsATableWithADecadeALine) {
  PredictBed bed(OutputFormat::kTable);

  ASSERT_EQ(bed.Fit(), kExitOk);

  EXPECT_THAT(bed.out.str(), HasSubstr("LINE'S MEDIAN"));
  EXPECT_THAT(bed.out.str(), HasSubstr("points left out:"));
  EXPECT_THAT(bed.out.str(), HasSubstr("curves left out:"));
}

TEST(Predict, FitsAllFilesTogether) {
  PredictBed bed;
  const std::string other =
      WriteFile("2.csv", "dtype,flops,seconds\nf16,0,1\nf16,8,2\nf16,16,3\n");

  ASSERT_EQ(bed.Fit({}, {other}), kExitOk);

  const json document = bed.Output();
  EXPECT_EQ(document["points"], 41);
  EXPECT_EQ(document["curves"], 5);
}

TEST(Predict, AnswersWhatIsAskedWithAnInterval) {
  PredictBed bed;

  ASSERT_EQ(bed.Fit({"op=gather,dtype=f16,elements=100000",
                     "op=gather,dtype=f16,elements=1e9",
                     "op=scatter,dtype=f16,elements=100000"}),
            kExitOk);

  const json predictions = bed.Output()["predictions"];
  ASSERT_EQ(predictions.size(), 3);
  EXPECT_EQ(predictions[0]["basis"], "inside");
  EXPECT_NEAR(predictions[0]["seconds"], 3e-5, 1e-7);
  EXPECT_EQ(predictions[1]["basis"], "outside");
  EXPECT_EQ(predictions[2]["basis"], "unseen");
  for (const json& prediction : predictions) {
    EXPECT_LE(prediction["low_seconds"], prediction["seconds"]);
    EXPECT_GE(prediction["high_seconds"], prediction["seconds"]);
  }
}

TEST(Predict, SaysHowManyRowsItLeftAside) {
  PredictBed bed;
  bed.text += "gather,f16,3,inf\n";

  ASSERT_EQ(bed.Fit(), kExitOk);

  EXPECT_THAT(bed.err.str(), HasSubstr("note: 1 rows have a time that is not"));
}

TEST(Predict, EndsWithUsageForAFileThatItCannotUse) {
  const std::string truncated =
      WriteFile(".csv", Measurements().substr(0, Measurements().size() - 30));
  EXPECT_THAT(ErrorOf(truncated), HasSubstr(absl::StrCat(truncated, ":49: ")));
  EXPECT_THAT(ErrorOf(WriteFile(".csv", "op,elements,seconds\na,1,nan\n")),
              HasSubstr("none of its 1 times is finite and positive"));
  EXPECT_THAT(ErrorOf(WriteFile(".csv", "")), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf("/nonexistent/t.csv"),
              HasSubstr("cannot read /nonexistent/t.csv: No such file"));
}

TEST(Predict, DoesNotWaitForAPipeNorReadAFolder) {
  const std::string pipe = WriteFile(".csv", "");
  ASSERT_EQ(remove(pipe.c_str()), 0);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);

  EXPECT_THAT(ErrorOf(pipe), HasSubstr("it is no regular file"));
  EXPECT_THAT(ErrorOf(testing::TempDir()), HasSubstr("no regular file"));
  remove(pipe.c_str());
}

TEST(Predict, EndsWithUsageForAQuestionItCannotRead) {
  for (const char* at : {"op=gather", "op=gather,elements=many", "elements",
                         "elements=1,bytes=2", "colour=red,elements=1",
                         "op=gather,elements=-1", "=1,elements=1"}) {
    PredictBed bed;

    EXPECT_EQ(bed.Fit({at}), kExitUsage) << at;
    EXPECT_EQ(bed.out.str(), "") << at;
  }
}

TEST(Predict, FindsNothingForASizeThatNothingWasMeasuredOver) {
  PredictBed bed;

  EXPECT_EQ(bed.Fit({"op=gather,flops=1"}), kExitNotFound);
}

TEST(PredictOptions, FitAndAtMayBeGivenAgain) {
  const char* words[] = {"paceline", "predict", "--fit", "a.csv",
                         "--fit",    "b.csv",   "--at",  "op=x,bytes=1"};
  ClientOptions options;

  EXPECT_FALSE(ParseClientOptions(8, words, &options).has_value());

  EXPECT_EQ(options.command, Command::kPredict);
  EXPECT_THAT(options.predict.files, ElementsAre("a.csv", "b.csv"));
  EXPECT_THAT(options.predict.at, ElementsAre("op=x,bytes=1"));
}

}  // namespace
}  // namespace paceline
