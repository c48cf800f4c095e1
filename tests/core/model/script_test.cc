
#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

ModelSpec ScriptSpec() {
  ModelSpec spec = DefaultModel(kScriptModel);
  spec.file = "/net.pt";
  spec.script.sha256 = "abc";
  spec.script.input = {4};
  spec.script.layers = {
      {"0",
       {{"0.weight", {8, 4}}, {"0.count", {}, false, DType::kI64}},
       {8},
       64,
       48,
       false},
      {"1", {{"1.weight", {3, 8}}}, {3}, 48, 44, true}};
  return spec;
}

std::string WhyNot(const ModelSpec& spec) {
  const auto model = DescribeModel(spec, {4}, 3);
  return model.ok() ? "nothing" : std::string(model.status().message());
}

TEST(Script, IsDescribedByWhatAWorkerFound) {
  const auto model = DescribeModel(ScriptSpec(), {4}, 3).value();

  ASSERT_EQ(model.layers.size(), 2u);
  EXPECT_EQ(model.file, "/net.pt");
  EXPECT_EQ(model.file_sha256, "abc");
  EXPECT_EQ(model.layers[0].parameter_bytes, 4 * 32 + 8);
  EXPECT_EQ(model.layers[0].output_bytes, 32);
  EXPECT_EQ(model.layers[1].operations[0].sizes, std::vector<int64_t>{1});
}

TEST(Script, WaitsForAWorkerToLookIntoIt) {
  ModelSpec spec = ScriptSpec();
  spec.script = {};

  EXPECT_TRUE(NeedsWorker(spec));
  EXPECT_FALSE(NeedsWorker(ScriptSpec()));
  EXPECT_TRUE(absl::IsFailedPrecondition(DescribeModel(spec, {4}, 3).status()));
}

TEST(Script, ProfilesOfTwoFilesAreTold) {
  ModelSpec other = ScriptSpec();
  other.script.sha256 = "def";

  EXPECT_NE(SizesText(ScriptSpec()), SizesText(other));
}

TEST(Script, RefusesSamplesAndClassesThatItWasNotTriedWith) {
  EXPECT_THAT(
      std::string(DescribeModel(ScriptSpec(), {5}, 3).status().message()),
      HasSubstr("described for samples of shape [4], data.shape is [5]"));
  EXPECT_THAT(
      std::string(DescribeModel(ScriptSpec(), {4}, 9).status().message()),
      HasSubstr("ends with shape [3] of a sample, need [9]"));
}

TEST(Script, OfTokensMayHaveScoresForEachOrForASample) {
  ModelSpec spec = ScriptSpec();
  spec.script.vocabulary = 20;
  const auto of_a_sample = DescribeModel(spec, {4}, 3).value();
  spec.script.layers[1].output = {4, 3};
  const auto of_each = DescribeModel(spec, {4}, 3).value();

  EXPECT_EQ(of_each.input_dtype, DType::kI64);
  EXPECT_EQ(of_each.vocabulary, 20);
  EXPECT_EQ(of_a_sample.label_shape, Shape{});
  EXPECT_EQ(of_each.label_shape, Shape{4});
  spec.script.layers[1].output = {2, 2, 3};
  EXPECT_THAT(WhyNot(spec), HasSubstr("need [3] or [tokens, 3]"));
  spec.script.layers[1].output = {4, 3};
  spec.script.vocabulary = 0;
  EXPECT_THAT(WhyNot(spec), HasSubstr("need [3]: one score a class"))
      << "pictures have one label each";
  spec.script.vocabulary = -1;
  EXPECT_THAT(WhyNot(spec), HasSubstr("impossible: its vocabulary"));
}

TEST(Script, RefusesDescriptionsThatCannotBe) {
  using S = ScriptModel;
  void (*const spoilt[])(S&) = {
      [](S& s) { s.layers[1].name = "0"; },
      [](S& s) { s.layers[0].output = {}; },
      [](S& s) { s.layers[0].output = {-8}; },
      [](S& s) {
        s.layers[0].output = {int64_t{1} << 40, int64_t{1} << 40};
      },
      [](S& s) { s.layers[0].activation_bytes = -1; },
      [](S& s) { s.layers[0].forward_flops = NAN; },
      [](S& s) { s.layers[1].parameters[0].name = "0.weight"; },
      [](S& s) { s.layers[0].parameters[0].dtype = DType::kUnspecified; },
      [](S& s) { s.layers[0].parameters[1].trainable = true; },
      [](S& s) {
        s.layers[0].parameters[0].shape = {int64_t{1} << 62, 16};
      },
      [](S& s) { s.layers.resize(5000, s.layers[0]); },
  };
  EXPECT_EQ(WhyNot(ScriptSpec()), "nothing");
  for (size_t i = 0; i < std::size(spoilt); ++i) {
    ModelSpec spec = ScriptSpec();
    spoilt[i](spec.script);

    EXPECT_THAT(WhyNot(spec), HasSubstr("impossible: ")) << i;
  }
}

}  // namespace
}  // namespace paceline
