#include "core/model/fine_tuning.h"

#include <set>

#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

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

std::set<std::string> Names(const ModelDescription& model, bool trainable) {
  std::set<std::string> names;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      EXPECT_FALSE(parameter.trainable && parameter.frozen) << parameter.name;
      if (parameter.trainable == trainable) names.insert(parameter.name);
    }
  }
  return names;
}

std::vector<double> BackwardShares(const ModelDescription& model) {
  std::vector<double> shares;
  for (const Layer& layer : model.layers) {
    shares.push_back(layer.backward_share);
  }
  return shares;
}

TEST(Freeze, LeavesTheLastLayersToTrain) {
  const ModelDescription model = Small("bert", "train.only=last-2");

  EXPECT_THAT(
      Names(model, true),
      UnorderedElementsAre("bert.encoder.layer.1.intermediate.dense.weight",
                           "bert.encoder.layer.1.intermediate.dense.bias",
                           "bert.encoder.layer.1.output.dense.weight",
                           "bert.encoder.layer.1.output.dense.bias",
                           "bert.encoder.layer.1.output.LayerNorm.weight",
                           "bert.encoder.layer.1.output.LayerNorm.bias",
                           "bert.pooler.dense.weight", "bert.pooler.dense.bias",
                           "classifier.weight", "classifier.bias"));
  // Nothing comes back to the layers below.
  EXPECT_THAT(BackwardShares(model), ElementsAre(0, 0, 0, 0, 1, 1));
}

TEST(Freeze, TakesAllLayersForTheLastOnes) {
  EXPECT_EQ(Names(Small("bert", "train.only=last-6"), false).size(), 0u);
}

TEST(Freeze, KeepsTheHeadOrTheNormalisations) {
  EXPECT_THAT(Names(Small("vit", "train.only=head"), true),
              UnorderedElementsAre("norm.weight", "norm.bias", "head.weight",
                                   "head.bias"));
  EXPECT_THAT(Names(Small("roberta", "train.only=norm"), true),
              Each(testing::HasSubstr("LayerNorm")));
  const auto resnet = Names(Small("resnet18", "train.only=norm"), true);
  EXPECT_TRUE(resnet.contains("bn1.weight"));
  EXPECT_TRUE(resnet.contains("layer2.0.downsample.1.weight"));
  EXPECT_FALSE(resnet.contains("layer2.0.downsample.0.weight"));
  EXPECT_FALSE(resnet.contains("fc.weight"));
}

// Running statistics stay buffers, which the rounds carry.
TEST(Freeze, LeavesBuffersAlone) {
  EXPECT_TRUE(HasBuffers(Small("resnet18", "train.only=head")));
  EXPECT_FALSE(HasBuffers(Small("gpt", "train.only=head")));
}

TEST(Freeze, ASharedParameterTrainsWhereItsOwnerDoes) {
  const ModelDescription head = Small("gpt", "train.only=head");
  EXPECT_THAT(SharedParameters(head), testing::IsEmpty());
  EXPECT_EQ(SharedParameters(head, /*frozen_too=*/true).size(), 1u);
  EXPECT_TRUE(head.layers.back().borrowed[0].frozen);
  EXPECT_EQ(SharedParameters(Small("gpt", "train.only=last-6")).size(), 1u);
}

}  // namespace
}  // namespace paceline
