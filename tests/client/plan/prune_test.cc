#include <filesystem>

#include "absl/strings/str_join.h"
#include "client/commands/job/job.h"
#include "core/model/catalog.h"
#include "core/rpc/convert/job_convert.h"
#include "core/weights/load.h"
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
            const LayerRange&,
            WeightsOrigin* origin) -> absl::StatusOr<std::vector<NamedTensor>> {
      files.push_back(spec.weights);
      if (origin != nullptr) {
        *origin = {{{"data.mean", "[0.5]"}}, {"says nothing of model.heads"}};
      }
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
    return Code(
        PruneModelCommand(console, load, job, options,
                          options.score == "taylor" ? &context : nullptr));
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
  EXPECT_THAT(file, HasSubstr("\"model.heads\":\"4\""));
  EXPECT_THAT(file, HasSubstr("\"data.mean\":\"[0.5]\""))
      << "what the whole one had";
  EXPECT_THAT(bed.err.str(), HasSubstr("note: says nothing of model.heads"));
  const ModelDescription pruned =
      DescribeModel(bed.job.model, {1, 28, 28}, 10).value();
  int64_t bytes = 0;
  for (const Layer& layer : pruned.layers) bytes += layer.parameter_bytes;
  EXPECT_GT(file.size(), static_cast<size_t>(bytes));
  EXPECT_LT(file.size(), static_cast<size_t>(bytes) + 8192);
}

TEST(PruneModel, PrintsItsAnswerWhereTheFileCannotGo) {
  PruneBed bed;
  bed.options.out = "-";

  EXPECT_EQ(bed.Run(), kExitUsage);

  EXPECT_THAT(bed.err.str(), HasSubstr("needs a file"));
}

TEST(PruneModel, HasTheMeshTakeAStepForEachBatchOfTaylor) {
  PruneBed bed;
  bed.options.score = "taylor";
  bed.options.file = "job.yaml";
  bed.options.batches = 2;
  bed.job.train.optimizer.name = "adamw";
  bed.job.data.distribution = "by-label";
  bed.job.pipeline.schedule = "pipedream";
  bed.job.model.only = "head";
  bed.client.submissions = {Parse<v1::SubmitJobResponse>("id: 5"),
                            Parse<v1::SubmitJobResponse>("id: 6")};
  bed.client.job_answers = {Parse<v1::Job>("id: 5 state: JOB_STATE_SUCCEEDED")};

  EXPECT_EQ(bed.Run(), kExitOk) << bed.err.str();

  ASSERT_EQ(bed.files.size(), 3u);
  EXPECT_EQ(bed.files[2], bed.files[1]);
  EXPECT_FALSE(std::filesystem::exists(bed.files[1]));
  ASSERT_EQ(bed.client.submitted.size(), 2u);
  const JobSpec first = FromProto(bed.client.submitted[0].spec());
  EXPECT_EQ(first.train.optimizer.name, "sgd");
  EXPECT_EQ(first.train.learning_rate.base, 1);
  EXPECT_EQ(first.train.steps, 1);
  EXPECT_EQ(first.data.distribution, "iid");
  EXPECT_EQ(first.pipeline.schedule, "1f1b");
  EXPECT_EQ(first.model.only, kTrainsAll);
  EXPECT_EQ(first.model.weights,
            std::filesystem::absolute("whole.safetensors"));
  EXPECT_EQ(bed.client.submitted[1].spec().train().seed(),
            first.train.seed + 1);
  EXPECT_THAT(bed.client.removed, ElementsAre(5, 6));
}

TEST(PruneModel, DeletesTheJobsWhenOneOfThemFails) {
  for (const auto& [answer, says] :
       {std::pair("id: 5 state: JOB_STATE_FAILED why: 'no such file'",
                  "no such file"),
        {"id: 5 state: JOB_STATE_SUCCEEDED skipped_steps: 1", "not finite"},
        {"id: 5 state: JOB_STATE_SUCCEEDED inputs { weights: 7 }",
         "another file"}}) {
    PruneBed bed;
    bed.options.score = "taylor";
    bed.options.file = "job.yaml";
    bed.options.batches = 2;
    bed.client.submissions = {Parse<v1::SubmitJobResponse>("id: 5"),
                              Parse<v1::SubmitJobResponse>("id: 6")};
    bed.client.job_answers = {Parse<v1::Job>(answer)};

    EXPECT_EQ(bed.Run(), kExitFailed);

    EXPECT_THAT(bed.err.str(), HasSubstr(says));
    EXPECT_THAT(bed.client.removed, ElementsAre(5, 6));
  }
}

TEST(PruneModel, LooksIntoTheWeightsHereWhereNoWorkerCan) {
  PruneBed bed;
  bed.options.score = "taylor";
  bed.options.file = "job.yaml";
  bed.options.batches = 1;
  bed.options.weights = bed.folder.Write("whole.safetensors", "w");
  bed.client.started->clear_workers();
  bed.client.started->add_busy("w1");
  bed.client.submissions = {Parse<v1::SubmitJobResponse>("id: 5")};
  bed.client.job_answers = {Parse<v1::Job>("id: 5 state: JOB_STATE_SUCCEEDED")};

  EXPECT_EQ(bed.Run(), kExitOk) << bed.err.str();

  EXPECT_THAT(bed.err.str(), testing::Not(HasSubstr("model.weights")));
}

TEST(FillInSizes, TakesThoseOfAPrunedFile) {
  const auto sizes_of = [](const char* text, const char* name = "vit",
                           std::vector<int32_t> own = {}) {
    ModelSpec spec = DefaultModel(name);
    spec.weights = "/pruned.safetensors";
    spec.sizes = std::move(own);
    const absl::Status filled = FillInSizes(
        [text](const std::string&,
               const std::string&) -> absl::StatusOr<std::string> {
          if (text == nullptr) return absl::NotFoundError("not here");
          return text;
        },
        spec);
    return filled.ok() ? absl::StrJoin(spec.sizes, ",")
                       : std::string(filled.message());
  };

  EXPECT_EQ(sizes_of("[8,2]"), "8,2");
  EXPECT_EQ(sizes_of("[8,2]", "vit", {4, 1}), "4,1");
  EXPECT_EQ(sizes_of("[8,2]", "lenet"), "");
  EXPECT_EQ(sizes_of(""), "");
  EXPECT_EQ(sizes_of(nullptr), "");
  EXPECT_THAT(sizes_of("[8"), HasSubstr("no list of numbers"));
  EXPECT_THAT(sizes_of("['x']"), HasSubstr("no list of numbers"));
  EXPECT_THAT(sizes_of("[4294967304]"), HasSubstr("no list of numbers"));
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
      {[](PruneBed& bed) { bed.options.score = "taylor"; }, "needs --file"},
      {[](PruneBed& bed) { bed.options.batches = 4; }, "for --score taylor"},
      {[](PruneBed& bed) {
         bed.options.weights = bed.folder.Write("w.safetensors", "");
         bed.options.out = bed.options.weights;
       },
       "is the file that is pruned"},
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
