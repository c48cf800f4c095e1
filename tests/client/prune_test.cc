#include "client/commands/prune.h"

#include "core/model/catalog.h"
#include "core/model/weights_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct PruneBed : CommandBed {
  PruneBed() : CommandBed(OutputFormat::kJson) {
    job.model = DefaultModel("vit");
    job.model.depth = 1;
    options.weights = "whole.safetensors";
    options.out = folder.Path("pruned.safetensors");
    options.target_macs = 0.5;
  }

  ExitCode Run() {
    const auto load =
        [&](const ModelSpec& spec, const ModelDescription& model,
            const LayerRange&) -> absl::StatusOr<std::vector<NamedTensor>> {
      files.push_back(spec.weights);
      if (spec.weights == "other.safetensors") {
        return absl::InvalidArgumentError("the tensors are not those of vit");
      }
      std::vector<NamedTensor> weights;
      for (const Layer& layer : model.layers) {
        for (const Parameter& each : layer.parameters) {
          weights.push_back({each.name, Tensor::Zeros(each.dtype, each.shape)});
        }
      }
      return weights;
    };
    return PruneModelCommand(console, load, job, options);
  }

  const TemporaryFolder folder;
  JobSpec job;
  PruneOptions options;
  std::vector<std::string> files;  // that were read
};

TEST(PruneModel, WritesTheWeightsWithTheirSizesAndSaysWhatIsLeft) {
  PruneBed bed;

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_EQ(bed.Output()["path"], bed.options.out);
  EXPECT_LE(bed.Output()["flops"], 0.5 * double{bed.Output()["flops_before"]});
  EXPECT_LT(bed.Output()["parameters"], bed.Output()["parameters_before"]);
  bed.job.model.sizes = bed.Output()["sizes"].get<std::vector<int32_t>>();
  const std::string file = bed.folder.Read("pruned.safetensors");
  EXPECT_THAT(file, HasSubstr("\"model.sizes\":\"["));
  const auto layout =
      LayOut(DescribeModel(bed.job.model, {1, 28, 28}, 10).value()).value();
  // The header has the sizes too.
  EXPECT_GT(file.size(), static_cast<size_t>(layout.file_bytes));
  EXPECT_LT(file.size(), static_cast<size_t>(layout.file_bytes) + 200);
}

TEST(PruneModel, ReadsTheFilesOfStepsForTaylor) {
  PruneBed bed;
  bed.options.score = "taylor";
  bed.options.after = {"a", "b"};

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_THAT(bed.files, ElementsAre("whole.safetensors", "a", "b"));
}

TEST(PruneModel, SaysWhyItCannot) {
  const struct {
    void (*change)(PruneBed&);
    const char* says;
  } kCases[] = {
      {[](PruneBed& bed) { bed.options.weights = "other.safetensors"; },
       "not those of vit"},
      {[](PruneBed& bed) { bed.options.target_macs = 1.5; }, "got 1.5"},
      {[](PruneBed& bed) { bed.job.model = DefaultModel("script"); },
       "program"},
      {[](PruneBed& bed) { bed.options.score = "taylor"; }, "needs --after"},
      {[](PruneBed& bed) { bed.options.after = {"a"}; }, "is for --score"},
      {[](PruneBed& bed) { bed.options.out = "/no/such/folder/file"; },
       "cannot write"},
  };
  for (const auto& [change, says] : kCases) {
    PruneBed bed;
    change(bed);

    EXPECT_NE(bed.Run(), kExitOk) << says;
    EXPECT_THAT(bed.err.str(), HasSubstr(says));
    EXPECT_EQ(bed.folder.Read("pruned.safetensors"), "");
  }
}

}  // namespace
}  // namespace paceline
