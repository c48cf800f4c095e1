#include "core/model/catalog.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// With its own sizes, on the data it is made for.
ModelDescription Own(const std::string& name) {
  const CatalogEntry* const entry = FindModel(name);
  EXPECT_NE(entry, nullptr) << name;
  return DescribeModel(entry->model, entry->input, entry->classes).value();
}

int64_t TrainableValues(const ModelDescription& model) {
  int64_t values = 0;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.trainable) values += NumElements(parameter.shape);
    }
  }
  return values;
}

double ForwardFlops(const ModelDescription& model) {
  double flops = 0;
  for (const Layer& layer : model.layers) flops += layer.forward_flops;
  return flops;
}

std::vector<std::string> ParameterNames(const Layer& layer) {
  std::vector<std::string> names;
  for (const Parameter& parameter : layer.parameters) {
    names.push_back(parameter.name);
  }
  return names;
}

TEST(Catalog, IsSortedByName) {
  EXPECT_TRUE(std::is_sorted(ModelCatalog().begin(), ModelCatalog().end(),
                             [](const CatalogEntry& a, const CatalogEntry& b) {
                               return a.model.name < b.model.name;
                             }));
}

// timm, torchvision and Hugging Face say that their models have these.
TEST(Catalog, ModelsHaveAsManyParametersAsTheirPapersSay) {
  const std::pair<const char*, int64_t> kParameters[] = {
      {"deit_tiny_patch16_224", 5'717'416},
      {"deit_small_patch16_224", 22'050'664},
      {"deit_base_patch16_224", 86'567'656},
      {"vit_tiny_patch16_224", 5'717'416},
      {"vit_small_patch16_224", 22'050'664},
      {"vit_base_patch16_224", 86'567'656},
      {"vit_b_16", 86'567'656},
      // Hugging Face's, the tied tensor once.
      {"gpt2", 124'439'808},
      {"gpt2_medium", 354'823'168},
      {"gpt2_large", 774'030'080},
      {"gpt2_xl", 1'557'611'200},
      {"bert_base", 109'483'778},     // with two classes
      {"roberta_base", 124'647'170},  // with two classes
  };
  for (const auto& [name, parameters] : kParameters) {
    EXPECT_EQ(TrainableValues(Own(name)), parameters) << name;
  }
}

TEST(Catalog, ModelsHaveAsManyFlopsAsTheirPapersSay) {
  // Multiply-adds published by timm, times two; ours also count elementwise
  // work.
  const std::pair<const char*, double> kFlops[] = {
      {"deit_small_patch16_224", 2 * 4.61e9},
      {"vit_b_16", 2 * 17.56e9},
  };
  for (const auto& [name, flops] : kFlops) {
    EXPECT_NEAR(ForwardFlops(Own(name)) / flops, 1, 0.02) << name;
  }
}

TEST(Catalog, VitB16HasTheNamesOfTorchvision) {
  const ModelDescription model = Own("vit_b_16");

  EXPECT_THAT(ParameterNames(model.layers[0]),
              ElementsAre("conv_proj.weight", "conv_proj.bias", "class_token",
                          "encoder.pos_embedding"));
  EXPECT_THAT(
      ParameterNames(model.layers[1]),
      ElementsAre("encoder.layers.encoder_layer_0.ln_1.weight",
                  "encoder.layers.encoder_layer_0.ln_1.bias",
                  "encoder.layers.encoder_layer_0.self_attention."
                  "in_proj_weight",
                  "encoder.layers.encoder_layer_0.self_attention.in_proj_bias",
                  "encoder.layers.encoder_layer_0.self_attention.out_proj."
                  "weight",
                  "encoder.layers.encoder_layer_0.self_attention.out_proj."
                  "bias"));
  EXPECT_THAT(ParameterNames(model.layers[2]),
              ElementsAre("encoder.layers.encoder_layer_0.ln_2.weight",
                          "encoder.layers.encoder_layer_0.ln_2.bias",
                          "encoder.layers.encoder_layer_0.mlp.0.weight",
                          "encoder.layers.encoder_layer_0.mlp.0.bias",
                          "encoder.layers.encoder_layer_0.mlp.3.weight",
                          "encoder.layers.encoder_layer_0.mlp.3.bias"));
  EXPECT_THAT(ParameterNames(model.layers.back()),
              ElementsAre("encoder.ln.weight", "encoder.ln.bias",
                          "heads.head.weight", "heads.head.bias"));
}

TEST(Catalog, SizesMayBeOverridden) {
  ModelSpec spec = DefaultModel("deit_small_patch16_224");
  spec.depth = 2;

  const auto model = DescribeModel(spec, {3, 32, 32}, 10).value();

  EXPECT_EQ(model.layers.size(), 1u + 2 * 2 + 1);
  EXPECT_EQ(model.layers[0].output, (Shape{5, 384}));
}

TEST(Catalog, AnImageThatDoesNotFitIsRefusedInTheModelsName) {
  const auto model =
      DescribeModel(DefaultModel("deit_small_patch16_224"), {1, 28, 28}, 10);

  EXPECT_TRUE(absl::IsInvalidArgument(model.status()));
  EXPECT_THAT(model.status().message(),
              HasSubstr("deit_small_patch16_224: patch must divide height and "
                        "width, got patch 16 and an image of 28 x 28"));
}

TEST(Catalog, SizesTextNamesWhatTheModelReads) {
  EXPECT_EQ(SizesText(DefaultModel("vit")),
            "depth=4,width=64,heads=4,patch=7,dropout=0");
  EXPECT_EQ(SizesText(DefaultModel("mlp")), "hidden=256-128,dropout=0");
  EXPECT_EQ(SizesText(DefaultModel("nobody")), "");
  EXPECT_TRUE(ModelReads("vit", "depth"));
  EXPECT_FALSE(ModelReads("mlp", "depth"));
  EXPECT_FALSE(ModelReads("nobody", "depth"));
}

TEST(Catalog, AnUnknownNameKeepsTheStructsSizes) {
  EXPECT_EQ(FindModel("nobody"), nullptr);
  EXPECT_EQ(DefaultModel("nobody").name, "nobody");
  EXPECT_EQ(DefaultModel("nobody").width, ModelSpec().width);
}

}  // namespace
}  // namespace paceline
