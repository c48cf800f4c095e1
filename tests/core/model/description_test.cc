#include "core/model/description.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/model/initialize.h"
#include "core/model/operation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/job_changes.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

ModelDescription Describe(const ModelSpec& spec) {
  const CatalogEntry* const entry = FindModel(spec.name);
  return Value(DescribeModel(spec, entry->input, entry->classes));
}

ModelSpec Named(const std::string& name) { return DefaultModel(name); }

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

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

std::string TensorText(const SampleTensor& tensor) {
  return absl::StrCat(DTypeName(tensor.dtype), ShapeText(tensor.shape));
}

std::string ParameterText(const Parameter& parameter) {
  return absl::StrCat(parameter.name, ShapeText(parameter.shape),
                      parameter.frozen      ? " frozen"
                      : parameter.trainable ? ""
                                            : " buffer");
}

std::string LayerText(const Layer& layer) {
  std::string text = absl::StrCat(layer.name, ":");
  for (const SampleTensor& tensor : BoundaryTensors(layer)) {
    absl::StrAppend(&text, " ", TensorText(tensor));
  }
  absl::StrAppend(&text, ", ", GradientTensors(layer).size(), " come back, ",
                  layer.output_bytes, " bytes, ", layer.activation_bytes,
                  " kept, ", layer.forward_flops, " flops");
  if (layer.block >= 0) absl::StrAppend(&text, ", block ", layer.block);
  if (layer.skipped) absl::StrAppend(&text, ", skipped");
  if (layer.backward_share != 1) {
    absl::StrAppend(&text, ", backward ", layer.backward_share);
  }
  for (const Parameter& parameter : layer.parameters) {
    absl::StrAppend(&text, "\n  ", ParameterText(parameter));
  }
  for (const Parameter& parameter : layer.borrowed) {
    absl::StrAppend(&text, "\n  borrows ", ParameterText(parameter));
  }
  return text;
}

// A question is "sums" or "layers", a model, "on SHAPE CLASSES" unless it is on
// the data that it is made for, and changes of the job.
std::string Answer(const std::string& question) {
  std::vector<std::string> words = absl::StrSplit(question, ' ');
  const std::string what = words.at(0);
  JobSpec job;
  job.model = Named(words.at(1));
  words.erase(words.begin(), words.begin() + 2);
  if (const CatalogEntry* const entry = FindModel(job.model.name)) {
    job.data.shape = entry->input;
    job.data.classes = entry->classes;
  }
  if (!words.empty() && words[0] == "on") {
    job.data.shape.clear();
    for (const auto size : absl::StrSplit(words[1], ',', absl::SkipEmpty())) {
      job.data.shape.push_back(std::stoll(std::string(size)));
    }
    job.data.classes = std::stoi(words[2]);
    words.erase(words.begin(), words.begin() + 3);
  }
  ChangeJob(job, absl::StrJoin(words, " "));
  const auto model = DescribeModel(job);
  if (!model.ok()) return model.status().ToString();
  int64_t trainable = 0, frozen = 0;
  double flops = 0;
  for (const Layer& layer : model->layers) {
    flops += layer.forward_flops;
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.trainable) trainable += NumElements(parameter.shape);
      if (parameter.frozen) frozen += NumElements(parameter.shape);
    }
  }
  std::string text = absl::StrCat(
      model->layers.size(), " layers of ",
      TensorText({model->input_dtype, model->input}), ", labels ",
      ShapeText(model->label_shape), " of ", model->classes, ", ", trainable,
      " train, ", frozen, " do not, ", flops, " flops",
      model->vocabulary > 0 ? absl::StrCat(", vocabulary ", model->vocabulary)
                            : "");
  for (const SharedParameter& shared : SharedParameters(*model, true)) {
    absl::StrAppend(&text, "\nshared: ", shared.name, ShapeText(shared.shape));
  }
  if (what == "sums") return text;
  for (const Layer& layer : model->layers) {
    absl::StrAppend(&text, "\n", LayerText(layer));
  }
  return text;
}

TEST(Description, AnswersWithLayersAndTheirTensors) {
  ExpectAnswers("core/models", Answer);
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

TEST(Catalog, IsSortedByName) {
  EXPECT_TRUE(std::is_sorted(ModelCatalog().begin(), ModelCatalog().end(),
                             [](const CatalogEntry& a, const CatalogEntry& b) {
                               return a.model.name < b.model.name;
                             }));
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
