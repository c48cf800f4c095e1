#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/plan/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Four curves of 12 sizes, a latency and a bandwidth.
std::string MeasuredTimes() {
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
struct FitBed : CommandBed {
  explicit FitBed(OutputFormat format = OutputFormat::kJson)
      : CommandBed(format) {}
  ExitCode Fit(const std::vector<std::string>& at = {},
               const std::vector<std::string>& more_files = {}) {
    std::vector<std::string> files = {folder.Write("1.csv", text)};
    files.insert(files.end(), more_files.begin(), more_files.end());
    return Code(PredictFitCommand(console, {.files = files, .at = at}));
  }

  const TemporaryFolder folder;
  std::string text = MeasuredTimes();
};

std::string ErrorOf(const std::string& path) {
  CommandBed bed(OutputFormat::kJson);
  EXPECT_EQ(
      bed.Code(PredictFitCommand(bed.console, {.files = {path}, .at = {}})),
      kExitUsage);
  EXPECT_EQ(bed.out.str(), "");
  return bed.err.str();
}

TEST(Predict, PrintsItsErrorAsOneDocument) {
  FitBed bed;

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

TEST(Predict, FitsAllFilesTogether) {
  FitBed bed;
  const std::string other = bed.folder.Write(
      "2.csv", "dtype,flops,seconds\nf16,0,1\nf16,8,2\nf16,16,3\n");

  ASSERT_EQ(bed.Fit({}, {other}), kExitOk);

  const json document = bed.Output();
  EXPECT_EQ(document["points"], 41);
  EXPECT_EQ(document["curves"], 5);
}

TEST(Predict, AnswersWhatIsAskedWithAnInterval) {
  FitBed bed;

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

// A question is the text of a file, "--at QUESTION", or both; the text of
// MeasuredTimes() where there is none.
TEST(Predict, SaysWhatItFoundOrWhatIsWrong) {
  const std::string measured = MeasuredTimes();
  ExpectAnswers("client/predict", [&](const std::string& question) {
    FitBed bed(OutputFormat::kTable);
    std::vector<std::string> at;
    std::string text;
    for (const absl::string_view line : absl::StrSplit(question, '\n')) {
      absl::string_view asked = line;
      if (absl::ConsumePrefix(&asked, "--at ")) {
        at.emplace_back(asked);
      } else {
        absl::StrAppend(&text, line == "@measured" ? measured
                               : line == "@cut"
                                   ? measured.substr(0, measured.size() - 30)
                                   : absl::StrCat(line, "\n"));
      }
    }
    if (!text.empty()) bed.text = text;
    return absl::StrReplaceAll(bed.Said(bed.Fit(at)),
                               {{bed.folder.path() + "/", ""}});
  });
}

TEST(Predict, EndsWithUsageForAFileThatItCannotUse) {
  const TemporaryFolder folder;
  const std::string pipe = folder.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, says] :
       {std::pair<std::string, std::string>{
            "/nonexistent/t.csv",
            "cannot read /nonexistent/t.csv: No such file"},
        {pipe, "it is no regular file"},  // nobody waits for a writer
        {folder.path(), "it is no regular file"}}) {
    EXPECT_THAT(ErrorOf(path), HasSubstr(says));
  }
}

// --- layer times of a model -------------------------------------------------

struct ModelBed : CommandBed {
  explicit ModelBed(OutputFormat format = OutputFormat::kJson)
      : CommandBed(format) {
    client.workers = IdleWorkers({"w1", "w2"});
    for (const int64_t batch : {4, 8, 16, 32}) {
      client.AddProfile(ProfileOf(LenetSpec(batch), "w1", 1e-4 * batch));
    }
  }
  ExitCode Run(int64_t batch, const std::string& device) {
    return Code(PredictModelCommand(context, LenetSpec(batch), device));
  }
};

TEST(PredictModel, PredictsWhatWasNeverMeasuredWithAnInterval) {
  ModelBed bed;

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
  ModelBed bed;
  // Nobody else says that a micro-batch of 16 takes ten times as long.
  bed.client.AddProfile(ProfileOf(LenetSpec(16), "w1", 1e-2));

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
    ModelBed table(OutputFormat::kTable), document;
    for (ModelBed* bed : {&table, &document}) {
      DeviceProfile profile = ProfileOf(LenetSpec(16), "w1", 1e-2);
      profile.cpu_share = share;
      for (LayerMeasurement& layer : profile.layers) layer.forward.cpu = 4e-3;
      bed->client.AddProfile(profile);
      ASSERT_EQ(bed->Run(16, "w1"), kExitOk);
    }

    const json device = document.Output()["devices"][0];
    const bool of_cpu = share < 1;
    EXPECT_EQ(device["clock"], of_cpu ? "cpu" : "wall");
    EXPECT_EQ(device["layers"][0]["forward_measured_seconds"],
              of_cpu ? 4e-3 : 1e-2);
    EXPECT_THAT(table.out.str(),
                Says(of_cpu ? "MEASURED CPU MS" : "MEASURED WALL MS",
                     "a micro-batch predicted, "));
  }
}

TEST(PredictModel, SaysWhenOnlyTheMeasurementItselfIsThere) {
  ModelBed bed;
  bed.client.measurements = Measurements();
  bed.client.AddProfile(ProfileOf(LenetSpec(16), "w1", 1e-3));

  ASSERT_EQ(bed.Run(16, "w1"), kExitOk);

  EXPECT_FALSE(bed.Output()["devices"][0]["independent"]);
}

TEST(PredictModel, PredictsForAllThatAreAttachedOrWereMeasured) {
  ModelBed bed;

  ASSERT_EQ(bed.Run(16, ""), kExitOk);

  const json devices = bed.Output()["devices"];
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0]["device"], "w1");
  EXPECT_EQ(devices[1]["device"], "w2");
}

TEST(PredictModel, FindsOnlyWhatIsThere) {
  ModelBed unknown, nothing;
  nothing.client.measurements = Measurements();

  EXPECT_EQ(unknown.Run(16, "w9"), kExitNotFound);
  EXPECT_EQ(nothing.Run(16, "w1"), kExitNotFound);

  EXPECT_EQ(unknown.out.str() + nothing.out.str(), "");
  EXPECT_THAT(unknown.err.str(), Says("w9", "known are: w1, w2"));
  EXPECT_THAT(nothing.err.str(),
              HasSubstr("paceline profile --model lenet --batch 16"));
}

}  // namespace
}  // namespace paceline
