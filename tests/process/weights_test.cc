// Weights leave a mesh as a file that the client itself can read and judge.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(
model: {name: lenet}
data: {name: synthetic, train_samples: 64, test_samples: 32}
train: {steps: 2, batch: 32, micro_batch: 16}
pipeline: {stages: 2}
)";

// Runs a command that needs no mesh.
Finished Paceline(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), Program("paceline"));
  return RunCommand(arguments);
}

TEST(Weights, OfAJobAreExportedCheckedAndInspected) {
  const Mesh mesh(2);
  const std::string file = mesh.folder() + "/w.safetensors";
  const nlohmann::json job = mesh.Submit(mesh.Write(kJob));

  // Here -o is the file's.
  const Finished exporting = mesh.Run(
      {"--output", "json", "job", "export", "last", "--output-file", file});
  const nlohmann::json weights = mesh.Json({"model", "inspect", file});

  ASSERT_EQ(exporting.exit_code, 0) << exporting.errors;
  const nlohmann::json exported = nlohmann::json::parse(exporting.output);
  EXPECT_EQ(exported["sha256"], job["weights_sha256"]);
  EXPECT_EQ(weights["sha256"], job["weights_sha256"]);
  EXPECT_EQ(weights["bytes"], exported["bytes"]);
  EXPECT_EQ(weights["tensors"].size(), exported["tensors"].get<size_t>());
  const nlohmann::json model = mesh.Json({"model", "inspect", "lenet"});
  EXPECT_GE(weights["values"].get<int64_t>(),
            model["parameters"].get<int64_t>());
}

TEST(Weights, ThatAreCutShortOrMissingAreErrorsWithTheirExitCodes) {
  const TemporaryFolder folder;
  const std::string file = folder / "w.safetensors";
  WriteWholeFile(file, std::string("\x40\0\0\0\0\0\0\0{", 9));

  const Finished cut = Paceline({"model", "inspect", file});
  const Finished missing =
      Paceline({"model", "inspect", file + "x.safetensors"});
  const Finished folder_given = Paceline({"model", "inspect", folder.path()});
  const Finished with_set =
      Paceline({"model", "inspect", file, "--set", "model.depth=2"});

  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_THAT(cut.errors, HasSubstr("cut short: a header of 64 bytes"));
  EXPECT_EQ(cut.output, "");
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.errors, HasSubstr("No such file"));
  EXPECT_EQ(folder_given.exit_code, 2);
  EXPECT_THAT(folder_given.errors, HasSubstr("no regular file"));
  EXPECT_EQ(with_set.exit_code, 2);
}

}  // namespace
}  // namespace paceline
