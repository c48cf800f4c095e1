#include <algorithm>

#include "core/model/catalog.h"
#include "core/weights/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

ModelDescription Model(const std::string& name, int32_t classes = 10) {
  ModelSpec spec = DefaultModel(name);
  spec.width = 8;
  spec.depth = 1;
  spec.heads = 2;
  return DescribeModel(spec, {3, 32, 32}, classes).value();
}

std::vector<TensorPlace> Whole(const ModelDescription& model) {
  std::vector<TensorPlace> tensors;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      TensorPlace place;
      place.name = parameter.name;
      place.dtype = parameter.dtype;
      place.shape = parameter.shape;
      tensors.push_back(place);
    }
  }
  return tensors;
}

TensorPlace& Find(std::vector<TensorPlace>& tensors, const std::string& name) {
  const auto found = std::find_if(
      tensors.begin(), tensors.end(),
      [&](const TensorPlace& place) { return place.name == name; });
  EXPECT_NE(found, tensors.end()) << name;
  return *found;
}

std::string WhyNoMatch(const ModelDescription& model,
                       const std::vector<TensorPlace>& tensors,
                       bool reset_head = false) {
  const absl::Status status = CheckWeights(model, tensors, reset_head);
  if (status.ok()) return "nothing";
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(CheckWeights, TakesTheModelsOwnInAnyOrder) {
  for (const char* name : {"resnet18", "vgg11", "vit_b_16"}) {
    const ModelDescription model = Model(name);
    std::vector<TensorPlace> tensors = Whole(model);
    std::reverse(tensors.begin(), tensors.end());

    EXPECT_EQ(WhyNoMatch(model, tensors), "nothing") << name;
    tensors.back().dtype = DType::kBF16;
    tensors.front().dtype = DType::kF16;
    EXPECT_EQ(WhyNoMatch(model, tensors), "nothing")
        << name << ", short floats";
    std::erase_if(tensors, [](const TensorPlace& place) {
      return place.name.ends_with(".num_batches_tracked");
    });
    EXPECT_EQ(WhyNoMatch(model, tensors), "nothing") << name << ", no counts";
  }
}

TEST(CheckWeights, NamesEveryKindOfFaultInOneMessage) {
  const ModelDescription model = Model("resnet18");
  std::vector<TensorPlace> tensors = Whole(model);
  Find(tensors, "conv1.weight").shape = {8, 1, 7, 7};
  Find(tensors, "bn1.weight").shape = {16};
  Find(tensors, "bn1.bias").dtype = DType::kI64;
  Find(tensors, "layer1.0.conv1.weight").name = "layer1.0.conv9.weight";
  Find(tensors, "layer2.0.bn1.bias").name = "layer2.0.bn9.bias";

  EXPECT_THAT(
      WhyNoMatch(model, tensors),
      AllOf(HasSubstr("not those of resnet18 with 10 classes"),
            HasSubstr("2 missing: layer1.0.conv1.weight; layer2.0.bn1.bias"),
            HasSubstr("2 that the model does not have: layer1.0.conv9.weight; "
                      "layer2.0.bn9.bias"),
            HasSubstr("2 of another shape: conv1.weight [8, 1, 7, 7], need "
                      "[8, 3, 7, 7]; bn1.weight [16], need [8]"),
            HasSubstr("1 of another dtype: bn1.bias I64, need F32"),
            Not(HasSubstr("reset_head"))));
}

TEST(CheckWeights, NamesTheFirstThreeOfAKindAndCountsTheRest) {
  const ModelDescription model = Model("resnet18");
  std::vector<TensorPlace> tensors = Whole(model);
  for (TensorPlace& tensor : tensors) tensor.name = "other." + tensor.name;

  const std::string why = WhyNoMatch(model, tensors);

  EXPECT_THAT(why, HasSubstr("102 missing: conv1.weight; bn1.weight; bn1.bias "
                             "and 99 more."));
  EXPECT_LT(why.size(), 400u);

  for (TensorPlace& tensor : tensors) tensor.name.insert(0, 5000, 'x');
  EXPECT_LT(WhyNoMatch(model, tensors).size(), 1200u);
}

TEST(CheckWeights, SaysHowToReplaceAHeadOfOtherClasses) {
  const ModelDescription model = Model("resnet18", 10);
  const std::vector<TensorPlace> other = Whole(Model("resnet18", 1000));

  EXPECT_THAT(WhyNoMatch(model, other),
              AllOf(HasSubstr("fc.weight [1000, 64], need [10, 64]"),
                    HasSubstr("fc.bias [1000], need [10]"),
                    HasSubstr("model.reset_head: true")));
  EXPECT_EQ(WhyNoMatch(model, other, /*reset_head=*/true), "nothing");
}

TEST(CheckWeights, AResetHeadNeedNotBeThere) {
  const ModelDescription model = Model("vit_b_16");
  std::vector<TensorPlace> tensors = Whole(model);
  std::erase_if(tensors, [](const TensorPlace& place) {
    return place.name == "heads.head.weight" || place.name == "heads.head.bias";
  });

  EXPECT_THAT(WhyNoMatch(model, tensors),
              HasSubstr("2 missing: heads.head.weight; heads.head.bias"));
  EXPECT_EQ(WhyNoMatch(model, tensors, /*reset_head=*/true), "nothing");
}

TEST(CheckWeights, TheNormBeforeTheHeadIsNoHead) {
  const ModelDescription model = Model("vit_b_16");

  EXPECT_TRUE(IsHead(model, "heads.head.weight"));
  EXPECT_FALSE(IsHead(model, "encoder.ln.weight"));
  EXPECT_FALSE(IsHead(model, "heads.header"));
}

// As in files that Hugging Face's libraries wrote before 2023.
TEST(CheckWeights, OverlooksMasksAndPositionsThatOldFilesHave) {
  const ModelDescription gpt =
      DescribeModel(DefaultModel("gpt"), {8}, 20).value();
  std::vector<TensorPlace> tensors = Whole(gpt);
  for (const char* const name :
       {"transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"}) {
    tensors.push_back({name, DType::kF32, {1, 1, 8, 8}});
  }
  EXPECT_EQ(WhyNoMatch(gpt, tensors), "nothing");

  const ModelDescription bert =
      DescribeModel(DefaultModel("bert"), {8}, 2).value();
  tensors = Whole(bert);
  tensors.push_back({"bert.embeddings.position_ids", DType::kI64, {1, 8}});
  EXPECT_EQ(WhyNoMatch(bert, tensors), "nothing");

  tensors.push_back({"transformer.h.0.attn.c_attn.more", DType::kF32, {8}});
  EXPECT_THAT(WhyNoMatch(bert, tensors), HasSubstr("attn.c_attn.more"))
      << "nothing else is";
}

TEST(CheckWeights, TellsTimmsNamesFromTorchvisions) {
  EXPECT_THAT(
      WhyNoMatch(Model("deit_tiny_patch16_224"), Whole(Model("vit_b_16"))),
      AllOf(HasSubstr("missing: "), HasSubstr("patch_embed.proj.weight"),
            HasSubstr("conv_proj.weight")));
}

TEST(CheckWeights, AnEmbeddingIsNoHeadThoughTheLastLayerBorrowsIt) {
  const ModelDescription model =
      DescribeModel(DefaultModel("gpt"), {8}, 20).value();
  std::vector<TensorPlace> tensors = Whole(model);

  EXPECT_FALSE(IsHead(model, "transformer.wte.weight"));
  EXPECT_EQ(WhyNoMatch(model, tensors), "nothing");
  Find(tensors, "transformer.wte.weight").shape = {30, 128};
  EXPECT_THAT(WhyNoMatch(model, tensors, /*reset_head=*/true),
              HasSubstr("[30, 128], need [20, 128]"));
}

// bert-base-uncased and roberta-base, as published: an encoder, and the head
// that guesses words.
TEST(CheckWeights, APublishedEncoderIsTakenWithANewHead) {
  for (const char* name : {"bert", "roberta"}) {
    const ModelDescription model =
        DescribeModel(DefaultModel(name), {8}, 2).value();
    std::vector<TensorPlace> tensors = Whole(model);
    std::erase_if(tensors, [](const TensorPlace& place) {
      return place.name.starts_with("classifier.");
    });
    for (const char* const guess :
         {"cls.predictions.bias", "lm_head.dense.weight",
          "roberta.pooler.dense.weight"}) {
      tensors.push_back({guess, DType::kF32, {8, 8}});
    }

    EXPECT_THAT(WhyNoMatch(model, tensors),
                AllOf(HasSubstr("missing: classifier."),
                      HasSubstr("does not have: cls.predictions.bias"),
                      HasSubstr("model.reset_head: true")))
        << name;
    EXPECT_EQ(WhyNoMatch(model, tensors, /*reset_head=*/true), "nothing")
        << name;
    tensors.pop_back();
    std::erase_if(tensors, [](const TensorPlace& place) {
      return place.name.ends_with("encoder.layer.0.output.dense.bias");
    });
    EXPECT_THAT(WhyNoMatch(model, tensors, /*reset_head=*/true),
                HasSubstr("1 missing: "))
        << "an encoder's own is missed";
  }
}

TEST(CheckWeights, AFineTunedRobertasDenseLayerIsComparedThoughItsHeadIsNew) {
  const ModelDescription model =
      DescribeModel(DefaultModel("roberta"), {8}, 2).value();
  std::vector<TensorPlace> tensors = Whole(model);
  Find(tensors, "classifier.dense.bias").shape = {5};

  EXPECT_THAT(WhyNoMatch(model, tensors, /*reset_head=*/true),
              HasSubstr("classifier.dense.bias [5], need"));
}

TEST(CheckWeights, AnotherHeadIsOverlookedInTextClassifiersOnly) {
  const ModelDescription model = Model("resnet18");
  std::vector<TensorPlace> tensors = Whole(model);
  tensors.push_back({"cls.predictions.bias", DType::kF32, {8}});

  EXPECT_THAT(WhyNoMatch(model, tensors, /*reset_head=*/true),
              HasSubstr("does not have: cls.predictions.bias"));
}

ModelDescription PublishedModel(const std::string& name) {
  return DescribeModel(DefaultModel(name), {8}, 20).value();
}

std::vector<TensorPlace> PlacesNamed(const std::vector<std::string>& names) {
  std::vector<TensorPlace> tensors;
  for (const std::string& name : names) tensors.emplace_back().name = name;
  return tensors;
}

TEST(PublishedNames, AGptsTrunkMayStandAlone) {
  EXPECT_THAT(PublishedNames(PublishedModel("gpt"),
                             PlacesNamed({"wte.weight", "h.0.ln_1.bias",
                                          "ln_f.weight", "h.0.attn.bias"})),
              ElementsAre(Pair("h.0.ln_1.bias", "transformer.h.0.ln_1.bias"),
                          Pair("ln_f.weight", "transformer.ln_f.weight"),
                          Pair("wte.weight", "transformer.wte.weight")));
}

TEST(PublishedNames, TensorFlowsNormsAreFoundWithAndWithoutTheTrunk) {
  EXPECT_THAT(PublishedNames(
                  PublishedModel("bert"),
                  PlacesNamed({"bert.embeddings.LayerNorm.gamma",
                               "embeddings.LayerNorm.beta",
                               "cls.predictions.transform.LayerNorm.gamma"})),
              ElementsAre(Pair("bert.embeddings.LayerNorm.gamma",
                               "bert.embeddings.LayerNorm.weight"),
                          Pair("embeddings.LayerNorm.beta",
                               "bert.embeddings.LayerNorm.bias")));
}

TEST(PublishedNames, TheModelsOwnNamesStay) {
  EXPECT_THAT(
      PublishedNames(PublishedModel("gpt"),
                     PlacesNamed({"transformer.wte.weight", "lm_head.weight"})),
      IsEmpty());
}

TEST(PublishedNames, NoTwoTensorsBecomeOne) {
  EXPECT_THAT(
      PublishedNames(PublishedModel("gpt"),
                     PlacesNamed({"transformer.wte.weight", "wte.weight"})),
      IsEmpty());
  EXPECT_THAT(PublishedNames(PublishedModel("bert"),
                             PlacesNamed({"bert.embeddings.LayerNorm.gamma",
                                          "embeddings.LayerNorm.gamma"})),
              ElementsAre(Pair("bert.embeddings.LayerNorm.gamma",
                               "bert.embeddings.LayerNorm.weight")));
}

}  // namespace
}  // namespace paceline
