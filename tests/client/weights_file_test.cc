#include "client/weights_file.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

WeightsSummary TwoTensors() {
  WeightsSummary weights;
  weights.tensors = {{"fc.weight", DType::kF32, {2, 3}, 128, 24},
                     {"step", DType::kI64, {}, 152, 8}};
  weights.metadata = {{"format", "pt"}, {"model", "mlp"}};
  weights.file_bytes = 160;
  weights.sha256 = "00ff";
  return weights;
}

TEST(InspectWeights, ListsTensorsTotalsMetadataAndHash) {
  CommandBed bed;
  FakeWeightsFileReader reader;
  reader.answer = TwoTensors();

  EXPECT_EQ(InspectWeightsCommand(bed.console, reader, "w.safetensors"),
            kExitOk);

  EXPECT_EQ(bed.out.str(),
            "TENSOR     DTYPE  SHAPE   BYTES\n"
            "fc.weight  F32    [2, 3]     24\n"
            "step       I64    []          8\n"
            "\n"
            "file:             w.safetensors\n"
            "size:             160 bytes\n"
            "tensors:          2 of 7 values, 32 bytes\n"
            "sha256:           00ff\n"
            "metadata format:  pt\n"
            "metadata model:   mlp\n");
}

TEST(InspectWeights, IsOneDocumentWithTheDocumentedKeys) {
  CommandBed bed(OutputFormat::kJson);
  FakeWeightsFileReader reader;
  reader.answer = TwoTensors();

  EXPECT_EQ(InspectWeightsCommand(bed.console, reader, "w"), kExitOk);

  EXPECT_EQ(json::parse(bed.out.str()), json::parse(R"({
    "path": "w", "bytes": 160, "sha256": "00ff", "values": 7,
    "tensor_bytes": 32, "metadata": {"format": "pt", "model": "mlp"},
    "tensors": [
      {"name": "fc.weight", "dtype": "F32", "shape": [2, 3], "offset": 128,
       "bytes": 24},
      {"name": "step", "dtype": "I64", "shape": [], "offset": 152,
       "bytes": 8}]})"));
}

TEST(InspectWeights, GivesTheReadersErrorItsExitCode) {
  for (const auto& [error, code] :
       {std::pair{absl::InvalidArgumentError("w: lies"), kExitUsage},
        {absl::NotFoundError("w: nowhere"), kExitNotFound},
        {absl::PermissionDeniedError("w: no"), kExitNotPermitted}}) {
    CommandBed bed(OutputFormat::kJson);
    FakeWeightsFileReader reader;
    reader.answer = error;

    EXPECT_EQ(InspectWeightsCommand(bed.console, reader, "w"), code);

    EXPECT_EQ(bed.out.str(), "");
    EXPECT_THAT(bed.err.str(), HasSubstr(std::string(error.message())));
  }
}

TEST(InspectWeights, KeepsHostileNamesOutOfTheTerminal) {
  CommandBed bed;
  FakeWeightsFileReader reader;
  reader.answer = TwoTensors();
  reader.answer->tensors[0].name = "\x1b[2J";
  reader.answer->metadata = {{"\x1b[2J", "\x1b[2J"}};

  InspectWeightsCommand(bed.console, reader, "w");

  EXPECT_THAT(bed.out.str(), Not(HasSubstr("\x1b")));
}

TEST(WeightsFiles, AreKnownByTheirEndingOrBecauseTheyAreThere) {
  EXPECT_TRUE(LooksLikeWeightsFile("nowhere.safetensors"));
  EXPECT_TRUE(LooksLikeWeightsFile(testing::TempDir()));
  EXPECT_FALSE(LooksLikeWeightsFile("lenett"));
}

}  // namespace
}  // namespace paceline
