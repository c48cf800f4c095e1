#include <string>
#include <utility>
#include <vector>

#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/weights/derived.h"
#include "core/weights/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Shape kImage = {1, 28, 28};

ModelSpec SmallVit() {
  ModelSpec spec = DefaultModel("vit");
  spec.depth = 1;
  spec.width = 8;
  spec.heads = 2;
  return spec;
}

ModelSpec Narrow(const std::string& name) {
  ModelSpec spec = DefaultModel(name);
  spec.width = 4;
  return spec;
}

std::vector<UnitGroup> GroupsOf(const ModelSpec& spec, const Shape& image) {
  return UnitGroupsOf(spec, image, 10).value();
}

std::vector<TensorPlace> PlacesOf(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorPlace> places;
  for (const NamedTensor& each : tensors) {
    places.push_back({each.name, each.tensor.dtype, each.tensor.shape});
  }
  return places;
}

// Value i of every tensor is value(name, i).
template <typename Value>
std::vector<NamedTensor> Weights(const ModelDescription& model,
                                 const Value& value) {
  std::vector<NamedTensor> weights;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      NamedTensor named{parameter.name,
                        Tensor::Zeros(parameter.dtype, parameter.shape)};
      if (parameter.dtype == DType::kF32) {
        const absl::Span<float> values = named.tensor.As<float>();
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = value(parameter.name, i);
        }
      }
      weights.push_back(std::move(named));
    }
  }
  return weights;
}

std::vector<NamedTensor> Ones(const ModelSpec& spec, const Shape& image) {
  return Weights(DescribeModel(spec, image, 10).value(),
                 [](const std::string&, size_t) { return 1.0f; });
}

NamedTensor Counting(std::string name, Shape shape) {
  NamedTensor named{std::move(name), Tensor::Allocate(DType::kF32, shape)};
  float next = 0;
  for (float& value : named.tensor.As<float>()) value = next++;
  return named;
}

TEST(UnitGroups, HeadsAreThreeRunsOfTheFirstProjectionAndColumnsOfTheSecond) {
  const std::vector<UnitGroup> groups = GroupsOf(SmallVit(), kImage);

  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[1].units, 2);
  EXPECT_THAT(groups[1].axes,
              ElementsAre(UnitAxis{"blocks.0.attn.qkv.weight", 0, 3},
                          UnitAxis{"blocks.0.attn.qkv.bias", 0, 3},
                          UnitAxis{"blocks.0.attn.proj.weight", 1, 1}));
  EXPECT_EQ(groups[2].units, 32);
  EXPECT_THAT(groups[2].axes,
              ElementsAre(UnitAxis{"blocks.0.mlp.fc1.weight", 0, 1},
                          UnitAxis{"blocks.0.mlp.fc1.bias", 0, 1},
                          UnitAxis{"blocks.0.mlp.fc2.weight", 1, 1}));
}

TEST(UnitGroups, TheWidthGoesThroughTheWholeTransformer) {
  const UnitGroup width = GroupsOf(SmallVit(), kImage)[0];

  EXPECT_EQ(width.units, 8);
  for (const char* name :
       {"patch_embed.proj.weight", "blocks.0.norm1.bias",
        "blocks.0.attn.proj.bias", "blocks.0.mlp.fc2.weight"}) {
    EXPECT_THAT(width.axes, Contains(UnitAxis{name, 0, 1}));
  }
  EXPECT_THAT(width.axes, Contains(UnitAxis{"cls_token", 2, 1}));
  EXPECT_THAT(width.axes, Contains(UnitAxis{"blocks.0.attn.qkv.weight", 1, 1}));
  EXPECT_THAT(width.axes, Contains(UnitAxis{"head.weight", 1, 1}));
  EXPECT_THAT(width.axes, Not(Contains(UnitAxis{"head.bias", 0, 1})));
}

TEST(UnitGroups, BlocksOfAResidualStreamShareTheirChannels) {
  const std::vector<UnitGroup> groups = GroupsOf(Narrow("resnet18"), kImage);

  // Four streams, the first of which is the stem's, and inside of 8 blocks.
  ASSERT_EQ(groups.size(), 12u);
  for (const char* name : {"conv1.weight", "bn1.running_mean",
                           "layer1.0.conv2.weight", "layer1.1.bn2.bias"}) {
    EXPECT_THAT(groups[0].axes, Contains(UnitAxis{name, 0, 1}));
  }
  EXPECT_THAT(groups[0].axes,
              Contains(UnitAxis{"layer2.0.downsample.0.weight", 1, 1}));
  EXPECT_THAT(groups[3].axes,
              Contains(UnitAxis{"layer2.0.downsample.1.running_var", 0, 1}));
  EXPECT_EQ(GroupsOf(Narrow("resnet50"), kImage).size(), 37u);
}

TEST(UnitGroups, AChannelBeforeAFlattenIsARunOfInputs) {
  ModelSpec spec = Narrow("vgg11");
  const std::vector<UnitGroup> groups = GroupsOf(spec, {3, 32, 32});

  ASSERT_EQ(groups.size(), 10u);
  EXPECT_THAT(groups[7].axes,
              ElementsAre(UnitAxis{"features.18.weight", 0, 1},
                          UnitAxis{"features.18.bias", 0, 1},
                          UnitAxis{"classifier.0.weight", 1, 1}));
}

TEST(UnitGroups, OneUnitThatIsLeftHasNoSlices) {
  ModelSpec spec = SmallVit();
  spec.sizes = {8, 1, 32};

  EXPECT_THAT(GroupsOf(spec, kImage)[1].axes, ElementsAre());
}

TEST(WithUnits, KeepsTheSlicesOfEveryRun) {
  const UnitGroup heads = {2, {{"qkv", 0, 3}, {"proj", 1, 1}}};

  const std::vector<NamedTensor> kept = WithUnits(
      heads, {1}, {Counting("qkv", {12, 1}), Counting("proj", {2, 4})});

  EXPECT_EQ(kept[0].tensor.shape, (Shape{6, 1}));
  EXPECT_THAT(kept[0].tensor.As<float>(), ElementsAre(2, 3, 6, 7, 10, 11));
  EXPECT_EQ(kept[1].tensor.shape, (Shape{2, 2}));
  EXPECT_THAT(kept[1].tensor.As<float>(), ElementsAre(2, 3, 6, 7));
}

TEST(ScoresOfWeights, CountAllSlicesOfAUnitButNoStatistics) {
  const UnitGroup group = {
      2, {{"a", 0, 1}, {"b", 1, 1}, {"bn.running_mean", 0, 1}}};
  std::vector<NamedTensor> weights = {Counting("a", {2, 1}),
                                      Counting("b", {2, 2}),
                                      Counting("bn.running_mean", {2})};
  weights[0].tensor.As<float>()[1] = -7;

  EXPECT_THAT(ScoresOfWeights({group}, weights),
              ElementsAre(ElementsAre(2, 11)));
}

TEST(AddScoresOfStep, SquaresTheSumOfWeightTimesGradientInEachBatch) {
  const UnitGroup group = {2, {{"a", 0, 1}}};
  const std::vector<NamedTensor> weights = {Counting("a", {2, 2})};
  // Gradients 1, 1, 1, -1, and then nothing.
  std::vector<NamedTensor> after = {Counting("a", {2, 2})};
  for (float& value : after[0].tensor.As<float>()) value -= 1;
  after[0].tensor.As<float>()[3] += 2;

  UnitScores scores(1);
  AddScoresOfStep({group}, weights, after, scores);
  AddScoresOfStep({group}, weights, weights, scores);

  EXPECT_THAT(scores, ElementsAre(ElementsAre(1, 1)));
}

absl::StatusOr<PrunedModel> PruneByWeights(
    const ModelSpec& spec, const Shape& image,
    const std::vector<NamedTensor>& weights, double target) {
  const auto groups = UnitGroupsOf(spec, image, 10);
  return Prune(spec, image, 10, weights,
               groups.ok() ? ScoresOfWeights(*groups, weights) : UnitScores(),
               target);
}

TEST(Prune, RemovesWhatMattersLeastUntilTheTargetIsMet) {
  const ModelSpec spec = SmallVit();
  const ModelDescription whole = DescribeModel(spec, kImage, 10).value();
  // The second half of the hidden units has no weight.
  const std::vector<NamedTensor> weights =
      Weights(whole, [](const std::string& name, size_t i) {
        if (name == "blocks.0.mlp.fc1.weight") return i < 128 ? 1.0f : 0.0f;
        if (name == "blocks.0.mlp.fc1.bias") return i < 16 ? 1.0f : 0.0f;
        if (name == "blocks.0.mlp.fc2.weight") return i % 32 < 16 ? 1.0f : 0.0f;
        return 1.0f;
      });

  const PrunedModel pruned = PruneByWeights(spec, kImage, weights, 0.8).value();

  EXPECT_LE(FlopsOf(pruned.model), 0.8 * FlopsOf(whole));
  EXPECT_GT(FlopsOf(pruned.model), 0.7 * FlopsOf(whole));
  EXPECT_EQ(pruned.model.sizes[0], 8);
  EXPECT_EQ(pruned.model.sizes[1], 2);
  EXPECT_GE(pruned.model.sizes[2], 16);
  for (const NamedTensor& each : pruned.weights) {
    if (each.name != "blocks.0.mlp.fc1.weight") continue;
    EXPECT_EQ(each.tensor.As<float>()[15 * 8], 1);
  }
}

TEST(Prune, GivesTheWeightsOfTheModelThatItDescribes) {
  for (const auto& [spec, image] :
       {std::pair{SmallVit(), kImage}, std::pair{Narrow("resnet18"), kImage},
        std::pair{Narrow("resnet50"), kImage},
        std::pair{Narrow("vgg11"), Shape{3, 32, 32}}}) {
    const PrunedModel pruned =
        PruneByWeights(spec, image, Ones(spec, image), 0.5).value();
    ModelSpec smaller = spec;
    smaller.sizes = pruned.model.sizes;

    EXPECT_TRUE(CheckWeights(DescribeModel(smaller, image, 10).value(),
                             PlacesOf(pruned.weights), false)
                    .ok());
  }
}

TEST(Prune, LeavesWholeBlocksOfChannels) {
  ModelSpec spec = Narrow("resnet18");
  spec.width = 48;

  const PrunedModel pruned =
      PruneByWeights(spec, kImage, Ones(spec, kImage), 0.5).value();

  for (const int32_t size : pruned.model.sizes) EXPECT_EQ(size % 8, 0) << size;
}

TEST(Prune, MayBeDoneAgain) {
  ModelSpec spec = Narrow("resnet18");
  const PrunedModel once =
      PruneByWeights(spec, kImage, Ones(spec, kImage), 0.7).value();
  spec.sizes = once.model.sizes;

  const PrunedModel twice =
      PruneByWeights(spec, kImage, once.weights, 0.7).value();

  EXPECT_LE(FlopsOf(twice.model), 0.7 * FlopsOf(once.model));
}

TEST(Prune, LeavesAModelWhoseTeacherIsTheWholeOne) {
  JobSpec job;
  job.model = SmallVit();
  ChangeJob(job, "train.distill.weights=/w; train.only=head");
  const ModelDescription whole = DescribeModel(SmallVit(), kImage, 10).value();
  job.model.sizes = whole.sizes;
  --job.model.sizes[0];

  const ModelDescription model = DescribeModel(job).value();

  EXPECT_EQ(model.teacher->sizes, whole.sizes);
  EXPECT_EQ(MetadataOf(model)[kSizesKey].substr(0, 2), "[7");
  EXPECT_EQ(MetadataOf(whole).count(kSizesKey), 0u);
  EXPECT_EQ(FlopsOf(*model.teacher), FlopsOf(whole));
  ChangeJob(job, "kind=infer");
  EXPECT_EQ(DescribeModel(job)->teacher, nullptr);
}

std::string WhyNotPruned(const std::string& name, double target) {
  const ModelSpec spec = name == "vit" ? SmallVit() : DefaultModel(name);
  const std::vector<NamedTensor> weights =
      name == "vit" ? Ones(spec, kImage) : std::vector<NamedTensor>();
  return std::string(
      PruneByWeights(spec, kImage, weights, target).status().message());
}

TEST(Prune, SaysWhatItCannotDo) {
  EXPECT_THAT(WhyNotPruned("vit", 0), HasSubstr("greater than 0"));
  EXPECT_THAT(WhyNotPruned("vit", 1), HasSubstr("less than 1"));
  EXPECT_THAT(WhyNotPruned("vit", std::nan("")), HasSubstr("got nan"));
  EXPECT_THAT(WhyNotPruned("vit", 0.01), HasSubstr("nothing would be left"));
  EXPECT_THAT(WhyNotPruned("gpt", 0.5), HasSubstr("tied"));
  EXPECT_THAT(WhyNotPruned("script", 0.5), HasSubstr("program"));
}

std::string WhyNotOfSizes(std::vector<int32_t> sizes) {
  ModelSpec spec = SmallVit();
  spec.sizes = std::move(sizes);
  return std::string(DescribeModel(spec, kImage, 10).status().message());
}

TEST(Sizes, AreOneForEachGroupAndWithinIt) {
  EXPECT_EQ(WhyNotOfSizes({4, 1, 20}), "");
  EXPECT_THAT(WhyNotOfSizes({4, 1}), HasSubstr("2 numbers, but vit has 3"));
  EXPECT_THAT(WhyNotOfSizes({4, 1, 20, 20}), HasSubstr("4 numbers"));
  EXPECT_THAT(WhyNotOfSizes({9, 1, 20}), HasSubstr("number 1 must be from 1"));
  EXPECT_THAT(WhyNotOfSizes({4, 0, 20}), HasSubstr("number 2"));
}

}  // namespace
}  // namespace paceline
