// Scripts are played and tell what command lines come to.
#include <string>

#include "client/commands/plan/plan.h"
#include "client/commands/reference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/command_script.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Play(const std::string& script) {
  return CommandScript().Play(script);
}

TEST(CommandScripts, OfJobs) { ExpectAnswers("client/jobs", Play); }

TEST(CommandScripts, OfSubmissions) {
  ExpectAnswers("client/submissions", Play);
}

TEST(CommandScripts, OfWatching) { ExpectAnswers("client/watching", Play); }

TEST(CommandScripts, OfProfiles) { ExpectAnswers("client/profiles", Play); }

TEST(CommandScripts, OfContextsTokensAndCertificates) {
  ExpectAnswers("client/access", Play);
}

TEST(MicroBatch, MakesABatchOfFourUnlessItIsSet) {
  JobSpec spec;
  spec.model.name = "lenet";

  EXPECT_EQ(WithMicroBatch(spec, 8, {})->train.batch, 32);
  spec.train.batch = 100;
  const auto set = WithMicroBatch(spec, 8, {"train.batch=100"});

  EXPECT_EQ(set->train.batch, 100);
  EXPECT_EQ(set->train.micro_batch, 8);
  spec.model.name = "lenett";
  EXPECT_THAT(WithMicroBatch(spec, 8, {}).status().message(),
              HasSubstr("model.name: "));
}

TEST(FillInScript, AsksNobodyForAScriptThatIsKnown) {
  CommandBed bed;
  JobSpec spec;
  spec.model.name = kScriptModel;
  spec.model.file = "/net.pt";
  spec.model.script.sha256 = "abc";
  spec.model.script.layers.resize(2);

  EXPECT_TRUE(FillInScript(bed.context, std::nullopt, &spec).ok());

  EXPECT_TRUE(bed.client.ordered.empty());
}

WeightsSummary TwoTensors() {
  WeightsSummary weights;
  weights.tensors = {{"fc.weight", DType::kF32, {2, 3}, 128, 24},
                     {"step", DType::kI64, {}, 152, 8}};
  weights.metadata = {{"format", "pt"}, {"model", "mlp"}};
  weights.file_bytes = 160;
  weights.sha256 = "00ff";
  return weights;
}

struct InspectBed : CommandBed {
  explicit InspectBed(OutputFormat format = OutputFormat::kTable)
      : CommandBed(format) {
    weights.answer = TwoTensors();
  }
  ExitCode Inspect() {
    return Code(InspectWeightsCommand(console, weights.reader(), "w"));
  }

  FakeWeights weights;
};

TEST(InspectWeights, ListsTensorsTotalsMetadataAndHash) {
  Golden golden("client/inspect_weights");
  for (const auto format : {OutputFormat::kTable, OutputFormat::kJson}) {
    InspectBed bed(format);
    const ExitCode code = bed.Inspect();
    golden.Add(bed.console.table() ? "table" : "document", bed.Said(code));
  }
}

TEST(InspectWeights, KeepsHostileNamesOutOfTheTerminal) {
  InspectBed bed;
  bed.weights.answer->tensors[0].name = "\x1b[2J";
  bed.weights.answer->metadata = {{"\x1b[2J", "\x1b[2J"}};

  EXPECT_EQ(bed.Inspect(), kExitOk);

  EXPECT_THAT(bed.out.str(), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace paceline
