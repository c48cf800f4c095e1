#include "core/model/catalog.h"
#include "core/weights/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

ModelDescription PublishedModel(const std::string& name) {
  return DescribeModel(DefaultModel(name), {8}, 20).value();
}

std::vector<TensorPlace> PlacesOf(const std::vector<std::string>& names) {
  std::vector<TensorPlace> tensors;
  for (const std::string& name : names) tensors.emplace_back().name = name;
  return tensors;
}

TEST(PublishedNames, AGptsTrunkMayStandAlone) {
  EXPECT_THAT(PublishedNames(PublishedModel("gpt"),
                             PlacesOf({"wte.weight", "h.0.ln_1.bias",
                                       "ln_f.weight", "h.0.attn.bias"})),
              ElementsAre(Pair("h.0.ln_1.bias", "transformer.h.0.ln_1.bias"),
                          Pair("ln_f.weight", "transformer.ln_f.weight"),
                          Pair("wte.weight", "transformer.wte.weight")));
}

TEST(PublishedNames, TensorFlowsNormsAreFoundWithAndWithoutTheTrunk) {
  EXPECT_THAT(
      PublishedNames(PublishedModel("bert"),
                     PlacesOf({"bert.embeddings.LayerNorm.gamma",
                               "embeddings.LayerNorm.beta",
                               "cls.predictions.transform.LayerNorm.gamma"})),
      ElementsAre(
          Pair("bert.embeddings.LayerNorm.gamma",
               "bert.embeddings.LayerNorm.weight"),
          Pair("embeddings.LayerNorm.beta", "bert.embeddings.LayerNorm.bias")));
}

TEST(PublishedNames, TheModelsOwnNamesStay) {
  EXPECT_THAT(
      PublishedNames(PublishedModel("gpt"),
                     PlacesOf({"transformer.wte.weight", "lm_head.weight"})),
      IsEmpty());
}

TEST(PublishedNames, NoTwoTensorsBecomeOne) {
  EXPECT_THAT(
      PublishedNames(PublishedModel("gpt"),
                     PlacesOf({"transformer.wte.weight", "wte.weight"})),
      IsEmpty());
  EXPECT_THAT(PublishedNames(PublishedModel("bert"),
                             PlacesOf({"bert.embeddings.LayerNorm.gamma",
                                       "embeddings.LayerNorm.gamma"})),
              ElementsAre(Pair("bert.embeddings.LayerNorm.gamma",
                               "bert.embeddings.LayerNorm.weight")));
}

}  // namespace
}  // namespace paceline
