#include "core/model/description.h"

#include <cmath>
#include <set>

#include "core/model/catalog.h"
#include "core/model/initialize.h"
#include "core/model/operation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelDescription Describe(const ModelSpec& spec) {
  const CatalogEntry* const entry = FindModel(spec.name);
  return Value(DescribeModel(spec, entry->input, entry->classes));
}

ModelSpec Named(const std::string& name) { return DefaultModel(name); }

std::string WhyNot(const ModelSpec& spec, const Shape& input, int classes) {
  const auto model = DescribeModel(spec, input, classes);
  return model.ok() ? "nothing" : std::string(model.status().message());
}

std::vector<std::string> ParameterNamesOf(const Layer& layer) {
  std::vector<std::string> names;
  for (const Parameter& parameter : layer.parameters) {
    names.push_back(parameter.name);
  }
  return names;
}

TEST(Description, SumsMatchTheirPartsInEveryModel) {
  for (const std::string& name : ModelNames()) {
    const ModelDescription model = Describe(Named(name));

    std::set<std::string> layers, parameters;
    for (const Layer& layer : model.layers) {
      EXPECT_TRUE(layers.insert(layer.name).second) << layer.name;
      int64_t bytes = 0;
      for (const Parameter& parameter : layer.parameters) {
        EXPECT_TRUE(parameters.insert(parameter.name).second) << parameter.name;
        bytes += TensorBytes(parameter.dtype, parameter.shape);
      }
      EXPECT_EQ(layer.parameter_bytes, bytes) << layer.name;
      int64_t crossing = 4 * NumElements(layer.output);
      for (const SampleTensor& tensor : layer.beside) {
        crossing += TensorBytes(tensor.dtype, tensor.shape);
      }
      EXPECT_EQ(layer.output_bytes, crossing);
      EXPECT_GE(layer.activation_bytes, layer.output_bytes) << layer.name;
    }
    Shape scores = model.label_shape;
    scores.push_back(model.classes);
    EXPECT_EQ(model.layers.back().output, scores) << name;
  }
}

// A layer's tensors find their operations by their names.
TEST(Description, EveryParameterBelongsToOneOperation) {
  for (const std::string& name : ModelNames()) {
    for (const Layer& layer : Describe(Named(name)).layers) {
      for (const Parameter& parameter : layer.parameters) {
        int owners = 0;
        for (const Operation& operation : layer.operations) {
          owners += !operation.name.empty() &&
                    (parameter.name == operation.name ||
                     parameter.name.rfind(operation.name + ".", 0) == 0);
        }
        EXPECT_EQ(owners, 1) << parameter.name;
      }
    }
  }
}

TEST(Description, LenetHasLayersForEightStages) {
  const ModelDescription model = Describe(Named("lenet"));

  ASSERT_EQ(model.layers.size(), 8u);
  EXPECT_EQ(model.layers[0].output, (Shape{16, 28, 28}));
  // 2 * 3 * 3 multiply-adds a value, then the relu.
  EXPECT_EQ(model.layers[0].forward_flops, (18 + 1) * 16 * 28 * 28);
}

TEST(Description, VitSplitsEachBlockInTwoAndNamesLikeTimm) {
  const ModelDescription model = Describe(Named("vit"));

  ASSERT_EQ(model.layers.size(), 1u + 2 * 4 + 1);
  EXPECT_THAT(ParameterNamesOf(model.layers[0]),
              ElementsAre("patch_embed.proj.weight", "patch_embed.proj.bias",
                          "cls_token", "pos_embed"));
  EXPECT_EQ(model.layers[0].output, (Shape{17, 64}));
  EXPECT_EQ(model.layers[2].name, "blocks.0.mlp");
  EXPECT_THAT(
      ParameterNamesOf(model.layers[1]),
      ElementsAre("blocks.0.norm1.weight", "blocks.0.norm1.bias",
                  "blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.bias",
                  "blocks.0.attn.proj.weight", "blocks.0.attn.proj.bias"));
  EXPECT_THAT(ParameterNamesOf(model.layers[2]),
              ElementsAre("blocks.0.norm2.weight", "blocks.0.norm2.bias",
                          "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc1.bias",
                          "blocks.0.mlp.fc2.weight", "blocks.0.mlp.fc2.bias"));
  EXPECT_THAT(
      ParameterNamesOf(model.layers[9]),
      ElementsAre("norm.weight", "norm.bias", "head.weight", "head.bias"));
  EXPECT_EQ(model.layers[1].parameters[2].shape, (Shape{192, 64}));
}

TEST(Description, MlpHasOneLayerMoreThanHiddenSizes) {
  ModelSpec spec = Named("mlp");
  spec.hidden = {32};
  const ModelDescription model = Describe(spec);
  spec.hidden = {};

  ASSERT_EQ(model.layers.size(), 2u);
  EXPECT_EQ(model.layers[0].parameters[0].shape, (Shape{32, 784}));
  EXPECT_EQ(model.layers[1].parameters[0].shape, (Shape{10, 32}));
  EXPECT_EQ(Describe(spec).layers.size(), 1u);
}

TEST(Description, DropoutAddsOperationsButNoParameters) {
  for (const std::string& name : ModelNames()) {
    if (!ModelReads(name, "dropout")) continue;
    ModelSpec spec = Named(name);
    spec.dropout = 0;
    const ModelDescription without = Describe(spec);
    spec.dropout = 0.1;
    const ModelDescription with = Describe(spec);

    ASSERT_EQ(with.layers.size(), without.layers.size());
    size_t more = 0;
    for (size_t i = 0; i < with.layers.size(); ++i) {
      EXPECT_EQ(ParameterNamesOf(with.layers[i]),
                ParameterNamesOf(without.layers[i]));
      more += with.layers[i].operations.size() -
              without.layers[i].operations.size();
    }
    EXPECT_GT(more, 0u) << name;
  }
}

TEST(Description, ImpossibleRequestsAreRefusedWithBothNumbers) {
  EXPECT_THAT(WhyNot(Named("vitt"), {1, 28, 28}, 10),
              HasSubstr("did you mean 'vit'?"));
  EXPECT_THAT(WhyNot(Named("mlp"), {}, 10), HasSubstr("shape []"));
  EXPECT_THAT(WhyNot(Named("mlp"), {-1, -28}, 10), HasSubstr("[-1, -28]"));
  EXPECT_THAT(WhyNot(Named("mlp"), {28}, 1), HasSubstr("classes is 1"));
  EXPECT_THAT(WhyNot(Named("lenet"), {784}, 10), HasSubstr("[784]"));
  EXPECT_THAT(WhyNot(Named("lenet"), {1, 28, 3}, 10), HasSubstr("4 x 4"));
  EXPECT_THAT(WhyNot(Named("vit"), {28, 28}, 10), HasSubstr("[28, 28]"));

  ModelSpec spec = Named("vit");
  spec.width = 1 << 20;
  EXPECT_THAT(WhyNot(spec, {1, 28, 28}, 10), HasSubstr("width"));
  spec = Named("mlp");
  spec.dropout = std::nan("");
  EXPECT_THAT(WhyNot(spec, {28}, 10), HasSubstr("dropout"));
}

TEST(Description, TheSmallestImagesThatFitAreTaken) {
  EXPECT_EQ(WhyNot(Named("lenet"), {1, 4, 4}, 2), "nothing");
  EXPECT_EQ(WhyNot(Named("vit"), {3, 7, 7}, 2), "nothing");
  EXPECT_EQ(WhyNot(Named("mlp"), {1}, 2), "nothing");
}

TEST(Operation, RefusesWhatDoesNotFit) {
  const auto refused = [](const Operation& operation, const Shape& input) {
    return !ExamineOperation(operation, input).ok();
  };

  EXPECT_TRUE(refused({"convolve", "", {}}, {4}));
  EXPECT_TRUE(refused({"linear", "a", {4}}, {4}));
  EXPECT_TRUE(refused({"linear", "a", {3, 2}}, {4}));
  EXPECT_TRUE(refused({"linear", "a", {4, 0}}, {4}));
  EXPECT_TRUE(refused({"conv2d", "a", {1, 2, 5, 1, 0}}, {1, 4, 4}));
  EXPECT_TRUE(refused({"conv2d", "a", {1, 2, 3, 1, -1}}, {1, 4, 4}));
  EXPECT_TRUE(refused({"max_pool2d", "", {0, 2}}, {1, 4, 4}));
  EXPECT_TRUE(refused({"causal_attention", "a", {6, 4}}, {3, 6}));
  EXPECT_TRUE(refused({"position_embedding", "a", {4, 6}}, {3, 6}));
  EXPECT_TRUE(refused({"take_token", "", {3}}, {3, 6}));
  EXPECT_TRUE(refused({"dropout", "", {}, 1.0}, {3}));
  EXPECT_FALSE(refused({"take_token", "", {2}}, {3, 6}));
}

std::vector<float> Initialize(const Layer& layer, int64_t seed, int index,
                              size_t parameter) {
  std::vector<std::vector<float>> values;
  std::vector<absl::Span<float>> spans;
  values.reserve(layer.parameters.size());
  for (const Parameter& p : layer.parameters) {
    values.emplace_back(NumElements(p.shape), -7.0f);
    spans.push_back(absl::MakeSpan(values.back()));
  }
  InitializeLayer(layer, seed, index, spans);
  return values[parameter];
}

double Deviation(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  const double mean = sum / values.size();
  return std::sqrt(squares / values.size() - mean * mean);
}

TEST(Initialize, DependsOnSeedAndLayerAlone) {
  const Layer layer = Describe(Named("lenet")).layers[2];

  EXPECT_EQ(Initialize(layer, 1, 2, 0), Initialize(layer, 1, 2, 0));
  EXPECT_NE(Initialize(layer, 1, 2, 0), Initialize(layer, 2, 2, 0));
  EXPECT_NE(Initialize(layer, 1, 2, 0), Initialize(layer, 1, 3, 0));
}

TEST(Initialize, WeightsHaveTheDeviationOfTheirPaper) {
  const ModelDescription lenet = Describe(Named("lenet"));
  const ModelDescription vit = Describe(Named("vit"));

  // He: 16 * 3 * 3 inputs.
  EXPECT_NEAR(Deviation(Initialize(lenet.layers[2], 1, 2, 0)),
              std::sqrt(2.0 / 144), 0.002);
  // Glorot, 64 in and 64 out for each of queries, keys and values.
  EXPECT_NEAR(Deviation(Initialize(vit.layers[1], 1, 1, 2)),
              std::sqrt(2.0 / 128), 0.002);
  EXPECT_NEAR(Deviation(Initialize(vit.layers[0], 1, 0, 3)), 0.02, 0.001);
}

// The first linear map of an mlp, 64 in and 256 out.
std::vector<float> InitializedBy(const std::string& init, int64_t seed = 1) {
  ModelSpec spec = Named("vit");
  spec.init = init;
  return Initialize(Describe(spec).layers[2], seed, 2, 2);
}

TEST(Initialize, AJobChoosesHowWeightsAreDrawn) {
  ASSERT_EQ(InitializedBy("auto").size(), 256u * 64u);
  EXPECT_NEAR(Deviation(InitializedBy("uniform")), std::sqrt(1.0 / (3 * 64)),
              0.001);
  EXPECT_NEAR(Deviation(InitializedBy("kaiming")), std::sqrt(2.0 / 64), 0.002);
  EXPECT_EQ(InitializedBy("xavier"), InitializedBy("auto"));
}

TEST(Initialize, ColumnsOfAnOrthogonalWeightAreOrthonormal) {
  const std::vector<float> weight = InitializedBy("orthogonal");

  for (const auto& [a, b] : {std::pair(0, 0), {0, 1}, {3, 63}, {63, 63}}) {
    double product = 0;
    for (int row = 0; row < 256; ++row) {
      product += double{weight[64 * row + a]} * weight[64 * row + b];
    }
    EXPECT_NEAR(product, a == b ? 1 : 0, 1e-5) << a << ", " << b;
  }
}

// Each sixteenth of the range comes once.
TEST(Initialize, SixteenStartsFillALatinHypercube) {
  std::set<int> parts;
  for (int64_t seed = 1; seed <= kHypercubeStarts; ++seed) {
    const double factor = double{InitializedBy("latin-hypercube", seed)[0]} /
                          InitializedBy("auto", seed)[0];
    EXPECT_GE(factor, 0.5);
    parts.insert(static_cast<int>((factor - 0.5) / 1.5 * kHypercubeStarts));
  }
  EXPECT_EQ(parts.size(), size_t{kHypercubeStarts});
}

TEST(Initialize, BiasesAreZeroAndScalesOne) {
  const ModelDescription vit = Describe(Named("vit"));

  EXPECT_EQ(Initialize(vit.layers[1], 1, 1, 0), std::vector<float>(64, 1.0f));
  EXPECT_EQ(Initialize(vit.layers[1], 1, 1, 1), std::vector<float>(64, 0.0f));
  EXPECT_EQ(Initialize(vit.layers[1], 1, 1, 5), std::vector<float>(64, 0.0f));
}

TEST(Description, GptNamesLikeHuggingFaceAndBorrowsItsEmbedding) {
  ModelSpec spec = Named("gpt");
  spec.depth = 1;

  const ModelDescription model = DescribeModel(spec, {16}, 40).value();

  ASSERT_EQ(model.layers.size(), 4u);
  EXPECT_EQ(model.input_dtype, DType::kI64);
  EXPECT_EQ(model.vocabulary, 40);
  EXPECT_EQ(model.label_shape, Shape{16});
  EXPECT_THAT(ParameterNamesOf(model.layers[0]),
              ElementsAre("transformer.wte.weight", "transformer.wpe.weight"));
  EXPECT_THAT(
      ParameterNamesOf(model.layers[1]),
      ElementsAre("transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                  "transformer.h.0.attn.c_attn.weight",
                  "transformer.h.0.attn.c_attn.bias",
                  "transformer.h.0.attn.c_proj.weight",
                  "transformer.h.0.attn.c_proj.bias"));
  EXPECT_EQ(model.layers[1].parameters[2].shape, (Shape{128, 384}))
      << "[in, out], as Conv1D";
  EXPECT_THAT(ParameterNamesOf(model.layers[3]),
              ElementsAre("transformer.ln_f.weight", "transformer.ln_f.bias"));
  EXPECT_EQ(model.layers[3].borrowed_bytes, 4 * 40 * 128);
  EXPECT_EQ(SharedParameters(model),
            (std::vector<SharedParameter>{
                {"transformer.wte.weight", {40, 128}, 0, 3}}));
}

TEST(Description, BertCarriesAMaskBesideAndClassifies) {
  const ModelDescription model =
      DescribeModel(Named("roberta"), {16}, 3).value();

  ASSERT_EQ(model.layers.size(), 1u + 2 * 4 + 1);
  EXPECT_EQ(model.label_shape, Shape{});
  EXPECT_THAT(BoundaryTensors(model.layers[2]),
              ElementsAre(SampleTensor{DType::kF32, {16, 128}},
                          SampleTensor{DType::kU8, {16}}));
  EXPECT_EQ(model.layers[2].output_bytes, 16 * 128 * 4 + 16);
  EXPECT_EQ(InputTensors(model, 0),
            (std::vector<SampleTensor>{{DType::kI64, {16}}}));
  EXPECT_THAT(
      ParameterNamesOf(model.layers.back()),
      ElementsAre("classifier.dense.weight", "classifier.dense.bias",
                  "classifier.out_proj.weight", "classifier.out_proj.bias"));
  EXPECT_EQ(ParameterNamesOf(model.layers[1])[0],
            "roberta.encoder.layer.0.attention.self.query.weight");
}

TEST(Description, WhatIsBorrowedBeginsAsItsOwner) {
  ModelSpec spec = Named("gpt");
  spec.depth = 1;
  spec.width = 8;
  spec.heads = 2;
  const ModelDescription model = DescribeModel(spec, {5}, 6).value();
  std::vector<float> embedding(6 * 8), positions(5 * 8), borrowed(6 * 8);

  InitializeLayer(model.layers[0], 3, 0,
                  {absl::MakeSpan(embedding), absl::MakeSpan(positions)});
  InitializeBorrowed(model, 3, 3, {absl::MakeSpan(borrowed)});

  EXPECT_EQ(borrowed, embedding);
  EXPECT_NE(embedding[0], embedding[1]);
}

}  // namespace
}  // namespace paceline
