#include <set>

#include "core/job/aggregation.h"
#include "core/job/job_check.h"
#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "core/model/initialize.h"
#include "core/model/operation.h"
#include "core/weights/derived.h"
#include "core/weights/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Has two blocks, with `changes` as a job file has them.
ModelDescription Small(const std::string& name, const std::string& changes) {
  JobSpec job;
  job.model = DefaultModel(name);
  job.model.depth = 2;
  job.model.width = 8;
  job.model.heads = 2;
  ChangeJob(job, changes);
  const CatalogEntry& entry = *FindModel(name);
  const bool tokens = entry.input.size() == 1;
  return DescribeModel(job.model, tokens ? Shape{6} : entry.input,
                       tokens ? 12 : entry.classes)
      .value();
}

// Running statistics stay buffers, which the rounds carry.
TEST(Freeze, LeavesBuffersAlone) {
  EXPECT_TRUE(HasBuffers(Small("resnet18", "train.only=head")));
  EXPECT_FALSE(HasBuffers(Small("gpt", "train.only=head")));
}

TEST(Lora, BeginsAsTheModelWithoutAdapters) {
  const ModelDescription plain = Small("bert", "");
  const ModelDescription model = Small("bert", "model.lora.rank=2");
  const auto draw = [](const ModelDescription& drawn) {
    std::map<std::string, std::vector<float>> values;
    for (size_t i = 0; i < drawn.layers.size(); ++i) {
      std::vector<absl::Span<float>> spans;
      for (const Parameter& parameter : drawn.layers[i].parameters) {
        std::vector<float>& into = values[parameter.name];
        into.assign(NumElements(parameter.shape), -7);
        spans.push_back(absl::MakeSpan(into));
      }
      InitializeLayer(drawn.layers[i], 3, static_cast<int>(i), spans);
    }
    return values;
  };

  auto with = draw(model);

  const std::string map = "bert.encoder.layer.1.attention.self.query.lora_";
  EXPECT_THAT(with[map + "B.weight"], Each(0));
  // Uniform in [-b, b], b = sqrt(1 / 8).
  EXPECT_THAT(with[map + "A.weight"],
              Each(testing::AllOf(testing::Ge(-0.354f), testing::Le(0.354f))));
  EXPECT_GT(std::set<float>(with[map + "A.weight"].begin(),
                            with[map + "A.weight"].end())
                .size(),
            10u);
  std::erase_if(with, [](const auto& each) {
    return IsOfAdapter({each.first, {}});
  });
  EXPECT_EQ(with, draw(plain));
}

TEST(Lora, BeginsFromAFileWithOrWithoutAdapters) {
  const auto places = [](const ModelDescription& model) {
    return LayOut(model).value().tensors;
  };
  const ModelDescription model = Small("bert", "model.lora.rank=2");

  EXPECT_TRUE(
      CheckWeights(model, places(Small("bert", "")), /*reset_head=*/false)
          .ok());
  EXPECT_TRUE(CheckWeights(model, places(model), /*reset_head=*/false).ok());
  EXPECT_FALSE(
      CheckWeights(Small("bert", ""), places(model), /*reset_head=*/false)
          .ok());
}

NamedTensor Filled(const std::string& name, Shape shape,
                   const std::vector<float>& values) {
  NamedTensor named{name, Tensor::Allocate(DType::kF32, std::move(shape))};
  std::copy(values.begin(), values.end(), named.tensor.As<float>().begin());
  return named;
}

std::vector<float> Values(const std::vector<NamedTensor>& tensors,
                          const std::string& name) {
  for (const NamedTensor& each : tensors) {
    if (each.name != name) continue;
    const auto values = each.tensor.As<float>();
    return {values.begin(), values.end()};
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

// W + alpha / rank B A, in both layouts of a weight.
TEST(Adapters, AreAddedToTheWeightsBesideThem) {
  for (const bool in_first : {false, true}) {
    ModelDescription model;
    Layer& layer = model.layers.emplace_back();
    layer.operations = {{in_first ? "conv1d" : "linear",
                         "fc",
                         {2, 3},
                         0,
                         {{0}, /*rank=*/1, /*scale=*/2}}};
    layer.parameters = {
        {"fc.weight", in_first ? Shape{2, 3} : Shape{3, 2}},
        {"fc.bias", {3}},
        {"fc.lora_A.weight", {1, 2}},
        {"fc.lora_B.weight", {3, 1}},
    };

    const auto merged = MergeAdapters(
        model,
        {Filled("fc.weight", layer.parameters[0].shape, {0, 0, 0, 0, 0, 7}),
         Filled("fc.bias", {3}, {1, 1, 1}),
         Filled("fc.lora_A.weight", {1, 2}, {10, 20}),
         Filled("fc.lora_B.weight", {3, 1}, {1, 2, 3})});

    ASSERT_TRUE(merged.ok()) << merged.status();
    EXPECT_EQ(merged->size(), 2u);
    EXPECT_EQ(Values(*merged, "fc.bias"), std::vector<float>({1, 1, 1}));
    EXPECT_EQ(Values(*merged, "fc.weight"),
              in_first ? std::vector<float>({20, 40, 60, 40, 80, 127})
                       : std::vector<float>({20, 40, 40, 80, 60, 127}));
    EXPECT_TRUE(absl::IsInvalidArgument(
        MergeAdapters(model, {Filled("fc.bias", {3}, {1, 1, 1})}).status()));
  }
}

TEST(Adapters, HaveTheNamesOfPeft) {
  const auto names = [](const std::string& name, const std::string& changes) {
    const ModelDescription model = Small(name, changes);
    std::vector<NamedTensor> weights;
    const SafetensorsLayout layout = LayOut(model).value();
    for (const TensorPlace& place : layout.tensors) {
      weights.push_back({place.name, Tensor::Zeros(place.dtype, place.shape)});
    }
    std::vector<std::string> found;
    for (const NamedTensor& each : PeftTensors(model, weights)) {
      found.push_back(each.name);
    }
    return found;
  };

  EXPECT_THAT(names("bert", "model.lora.rank=2"),
              testing::IsSupersetOf(
                  {"base_model.model.bert.encoder.layer.0.attention.self.query"
                   ".lora_A.weight",
                   "base_model.model.classifier.weight"}));
  EXPECT_THAT(names("gpt", "model.lora.rank=2"),
              Each(StartsWith("base_model.model.transformer.h.")));
  // PEFT wraps the whole of torch.nn.MultiheadAttention.
  EXPECT_THAT(
      names("vit_b_16",
            "model.lora.rank=2; model.lora.targets=in_proj,out_proj"),
      testing::IsSupersetOf(
          {"base_model.model.encoder.layers.encoder_layer_0.self_attention"
           ".lora_A.weight",
           "base_model.model.encoder.layers.encoder_layer_0.self_attention"
           ".base_layer.out_proj.lora_B.weight"}));
}

JobSpec SmallJob(const std::string& name, const std::string& changes = "") {
  JobSpec job;
  job.model = DefaultModel(name);
  job.model.depth = 2;
  const CatalogEntry& entry = *FindModel(name);
  const bool tokens = entry.input.size() == 1;
  job.data.shape = tokens ? Shape{6} : entry.input;
  job.data.classes = tokens ? 12 : entry.classes;
  ChangeJob(job, changes);
  return job;
}

std::string WhyNot(const std::string& name, int64_t block) {
  return WhyNotSkipped(DescribeModel(SmallJob(name)).value(), block);
}

TEST(WhyNotSkipped, RefusesWhatFollowingLayersCouldNotDoWithout) {
  EXPECT_EQ(WhyNot("vit", 1), "");
  EXPECT_EQ(WhyNot("resnet18", 1), "");
  EXPECT_THAT(WhyNot("resnet18", 2), HasSubstr("another shape"));
  EXPECT_THAT(WhyNot("vit", 2), HasSubstr("only blocks 0 to 1"));
  EXPECT_THAT(WhyNot("vgg11", 0), HasSubstr("no residual blocks"));
}

TEST(SkipStage, IsForEveryModeAndOfNoWorker) {
  const std::string skip =
      "faults[0].kind=skip-stage; faults[0].block=1; faults[0].worker=";
  for (const char* mode : {"none", "rolling", "gossip"}) {
    JobSpec job = SmallJob("vit", skip);
    job.name = "skips";
    job.data.name = "synthetic";
    job.aggregation.mode = mode;
    EXPECT_TRUE(CheckJobSpec(job).empty()) << CheckJobSpec(job).front().why;
  }
}

TEST(SkipStage, HasNoUseForAWorkerOrSteps) {
  JobSpec job = SmallJob("vit", "faults[0].kind=skip-stage; faults[0].block=1");
  job.aggregation.mode = "rolling";
  std::vector<std::string> unused;
  for (const UnusedKey& key : UnusedKeys(job, {{"faults[0].kind"},
                                               {"faults[0].block"},
                                               {"faults[0].worker"},
                                               {"faults[0].step"},
                                               {"faults[0].steps"}})) {
    unused.push_back(key.path);
  }

  EXPECT_THAT(unused, ElementsAre("faults[0].worker", "faults[0].step",
                                  "faults[0].steps"));
  EXPECT_TRUE(CheckFaultWorkers(job, {"w1"}).empty());
}

TEST(SkipStage, SaysWhatIsWrongWithIt) {
  const std::string skip = "faults[0].kind=skip-stage";
  JobSpec job = SmallJob("vit", skip);
  job.data.name = "synthetic";
  EXPECT_THAT(WhyAt(job, "faults[0].block"), HasSubstr("is missing"));

  ChangeJob(job, "faults[0].block=7");
  EXPECT_THAT(WhyAt(job, "faults[0].block"), HasSubstr("blocks 0 to 1"));
  EXPECT_THAT(DescribeModel(job).status().message(), HasSubstr("block is 7"));
}

TEST(IsDropped, IsDrawnFromSeedStepMicroBatchAndBlock) {
  TrainSpec train;
  train.layer_drop = 0.25;
  int dropped = 0;
  std::set<std::vector<bool>> rows;  // one a block, of each step
  for (int block = 0; block < 4; ++block) {
    std::vector<bool> row;
    for (int64_t step = 0; step < 500; ++step) {
      row.push_back(IsDropped(train, step, 1, block));
      EXPECT_EQ(row.back(), IsDropped(train, step, 1, block));
      dropped += row.back() ? 1 : 0;
    }
    rows.insert(row);
  }

  EXPECT_NEAR(dropped, 500, 60);  // three deviations
  EXPECT_EQ(rows.size(), 4u);
  train.layer_drop = 0;
  EXPECT_FALSE(IsDropped(train, 0, 0, 0));
}

TEST(LayerDrop, SaysWhichModelsItIsNotFor) {
  const auto why = [](const char* name, const char* share) {
    JobSpec job = SmallJob(name);
    job.data.name = FindModel(name)->synthetic;
    ChangeJob(job, absl::StrCat("train.layer_drop=", share));
    return WhyAt(job, "train.layer_drop");
  };

  EXPECT_EQ(why("vit", "0.5"), "nothing");
  EXPECT_THAT(why("vit", "1"), HasSubstr("[0, 1)"));
  EXPECT_THAT(why("resnet18", "0.5"), HasSubstr("running statistics"));
  EXPECT_THAT(why("mlp", "0.5"), HasSubstr("has none that keeps its shape"));
}

TEST(Tolerate, IsAWordThatNamedWorkersGiveAnEffect) {
  JobSpec job = SmallJob("vit", "kind=infer; data.name=synthetic");
  const auto unused = [&job] {
    return UnusedKeys(job, {{"infer.tolerate"}}).size();
  };
  ChangeJob(job, "infer.tolerate=skip");

  EXPECT_EQ(WhyAt(job, "infer.tolerate"), "nothing");
  EXPECT_EQ(unused(), 1u);
  ChangeJob(job, "pipeline.workers=a,b");
  EXPECT_EQ(unused(), 0u);
  ChangeJob(job, "infer.tolerate=skipp");
  EXPECT_THAT(WhyAt(job, "infer.tolerate"), HasSubstr("did you mean 'skip'"));
}

}  // namespace
}  // namespace paceline
