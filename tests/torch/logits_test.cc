// Our models give what torchvision's give, and what the formulas of language
// models give, for equal weights and samples.  The scripts of
// tests/nightly/logits wrote what is compared with.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/model/catalog.h"
#include "core/weights/derived.h"
#include "core/weights/load.h"
#include "gtest/gtest.h"
#include "torch/torch.h"
#include "worker/torch/engine.h"
#include "worker/torch/tensor_bridge.h"
#include "worker/torch/torch_layer.h"

namespace paceline {
namespace {

constexpr double kTolerance = 1e-4;

struct Expected {
  ModelSpec spec;
  Shape shape;
  int32_t classes = 0;
  std::vector<std::vector<double>> logits;  // one a sample
};

template <typename T>
std::vector<T> Rest(std::istringstream& line) {
  std::vector<T> values;
  for (T value = 0; line >> value;) values.push_back(value);
  return values;
}

Expected ReadExpected(const std::filesystem::path& path) {
  Expected expected;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (word == "model") {
      line >> word;
      expected.spec = DefaultModel(word);
    } else if (word == "set") {
      int32_t value = 0;
      line >> word;
      if (word == "sizes") {
        expected.spec.sizes = Rest<int32_t>(line);
        continue;
      }
      line >> value;
      (word == "depth"       ? expected.spec.depth
       : word == "width"     ? expected.spec.width
       : word == "heads"     ? expected.spec.heads
       : word == "positions" ? expected.spec.positions
       : word == "rank"      ? expected.spec.lora.rank
                             : expected.spec.vocabulary) = value;
    } else if (word == "shape") {
      expected.shape = Rest<int64_t>(line);
    } else if (word == "classes") {
      line >> expected.classes;
    } else {
      expected.logits.push_back(Rest<double>(line));
    }
  }
  EXPECT_FALSE(expected.logits.empty()) << path;
  return expected;
}

// draw() of the script.
void Draw(const Parameter& parameter, uint64_t word, absl::Span<float> out) {
  SplitMix64 random(MixSeed({word}));
  const std::string& name = parameter.name;
  const bool is_positive = name.find(".running_var") != std::string::npos ||
                           name.find(".weight") != std::string::npos;
  const size_t rank = parameter.shape.size();
  const double fan_in =
      rank == 0 ? 1 : static_cast<double>(out.size()) / parameter.shape.front();
  for (float& value : out) {
    const double u = random.Unit();
    const double drawn = rank == 1 && is_positive ? 0.5 + u
                         : rank == 1 || rank == 3
                             ? 0.2 * (u - 0.5)
                             : (2 * u - 1) * std::sqrt(3 / fan_in);
    value = static_cast<float>(drawn);
  }
}

std::vector<NamedTensor> DrawAll(const ModelDescription& model) {
  std::map<std::string, const Parameter*> sorted;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      sorted[parameter.name] = &parameter;
    }
  }
  std::vector<NamedTensor> drawn;
  uint64_t word = 0;
  for (const auto& [name, parameter] : sorted) {
    const uint64_t own = word++;
    if (parameter->dtype != DType::kF32) continue;
    Tensor tensor = Tensor::Allocate(DType::kF32, parameter->shape);
    Draw(*parameter, own, tensor.As<float>());
    drawn.push_back({name, tensor});
  }
  return drawn;
}

at::Tensor Images(const Expected& expected) {
  Shape shape = {static_cast<int64_t>(expected.logits.size())};
  shape.insert(shape.end(), expected.shape.begin(), expected.shape.end());
  Tensor images = Tensor::Allocate(DType::kF32, shape);
  SplitMix64 random(MixSeed({12345}));
  for (float& value : images.As<float>()) {
    value = static_cast<float>(random.Unit() * 2.0 - 1);
  }
  return ToTorch(images);
}

// tokens_of() of language.py.
at::Tensor Tokens(const Expected& expected, const ModelDescription& model) {
  const auto samples = static_cast<int64_t>(expected.logits.size());
  const int64_t block = expected.shape[0];
  Tensor tokens = Tensor::Allocate(DType::kI64, {samples, block});
  SplitMix64 random(MixSeed({12345}));
  for (int64_t& token : tokens.As<int64_t>()) {
    token = static_cast<int64_t>(static_cast<double>(random.Unit()) *
                                 static_cast<double>(model.vocabulary));
  }
  if (model.label_shape.empty()) {
    for (int64_t j = block - block / 4; j < block; ++j) {
      tokens.As<int64_t>()[block + j] = FindModel(model.name)->padding;
    }
  }
  return ToTorch(tokens);
}

// Layer by layer, as an engine evaluates.
at::Tensor Evaluate(const ModelDescription& model,
                    const std::vector<NamedTensor>& weights, at::Tensor x) {
  const c10::InferenceMode guard;
  std::vector<at::Tensor> beside;
  Products products(Precision::kF32);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    TorchLayer layer(model.layers[i], 1, static_cast<int>(i), 0, products);
    for (TorchParameter& parameter : layer.parameters()) {
      for (const NamedTensor& named : weights) {
        if (named.name != parameter.name) continue;
        const absl::Status set =
            OverwriteWeights({named}, {{parameter.name, parameter.value}});
        EXPECT_TRUE(set.ok()) << set;
      }
    }
    x = layer.Forward(x, /*training=*/false, nullptr, &beside);
  }
  return x;
}

void ExpectLogitsOf(const std::filesystem::path& path) {
  SetComputeThreads(1);
  Expected expected = ReadExpected(path);
  const auto model =
      DescribeModel(expected.spec, expected.shape, expected.classes);
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<NamedTensor> weights;
  std::filesystem::path file = path;
  file.replace_extension(".safetensors");
  if (std::filesystem::exists(file)) {
    expected.spec.weights = file;
    const int layers = static_cast<int>(model->layers.size());
    auto loaded = LoadWeights(expected.spec, *model, {0, layers});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    weights = *std::move(loaded);
  } else {
    weights = DrawAll(*model);
  }

  const bool tokens = model->input_dtype == DType::kI64;
  at::Tensor logits = Evaluate(
      *model, weights, tokens ? Tokens(expected, *model) : Images(expected));

  ASSERT_EQ(logits.size(-1), expected.classes);
  logits = logits.flatten(1);
  for (size_t sample = 0; sample < expected.logits.size(); ++sample) {
    const std::vector<double>& row = expected.logits[sample];
    // Where a file has the last token's alone.
    const auto size = static_cast<int64_t>(row.size());
    ASSERT_TRUE(size == logits.size(1) || size == expected.classes) << path;
    const int64_t first = logits.size(1) - size;
    const float* const values =
        logits.data_ptr<float>() + sample * logits.size(1) + first;
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_NEAR(values[i], row[i], kTolerance)
          << path << " sample " << sample << " class " << i;
    }
  }
}

TEST(Logits, OfSmallModelsAreTorchvisionsOrThoseOfTheFormulas) {
  const std::string folder =
      absl::StrCat(PACELINE_SOURCE_DIR, "/tests/golden/logits/");
  for (const char* name :
       {"resnet18", "resnet50", "vgg11", "vit_b_16", "gpt", "bert", "roberta",
        "bert.lora", "vit.pruned", "resnet18.pruned"}) {
    ExpectLogitsOf(folder + name + ".txt");
  }
}

// Puts 0 in all slices of the units that are not in `kept`.
std::vector<NamedTensor> WithZeros(const UnitGroup& group,
                                   const std::vector<int32_t>& kept,
                                   std::vector<NamedTensor> weights) {
  for (const UnitAxis& axis : group.axes) {
    for (NamedTensor& named : weights) {
      if (named.name != axis.tensor) continue;
      const at::Tensor values = ToTorch(named.tensor);
      for (int64_t unit = 0; unit < group.units; ++unit) {
        if (std::count(kept.begin(), kept.end(), unit) > 0) continue;
        const int64_t run = values.size(axis.axis) / axis.runs;
        const int64_t slice = run / group.units;
        for (int64_t i = 0; i < axis.runs; ++i) {
          values.narrow(axis.axis, i * run + unit * slice, slice).zero_();
        }
      }
    }
  }
  return weights;
}

TEST(Logits, OfAPrunedModelAreThoseOfTheWholeWithItsUnitsAtZero) {
  for (const std::string name : {"vit", "resnet18", "resnet50", "vgg11"}) {
    Expected of{DefaultModel(name), {1, 28, 28}, 10, {{}, {}}};
    of.spec.width = 8;
    of.spec.depth = 1;
    if (name != "vit") of.shape = {3, 32, 32};
    const ModelDescription whole =
        DescribeModel(of.spec, of.shape, of.classes).value();
    const std::vector<UnitGroup> groups =
        UnitGroupsOf(of.spec, of.shape, of.classes).value();
    std::vector<NamedTensor> zeroed = DrawAll(whole);
    std::vector<NamedTensor> pruned = DrawAll(whole);
    of.spec.sizes = whole.sizes;
    // Layer normalisation is over the width: a number less is another result.
    for (size_t i = name == "vit" ? 1 : 0; i < groups.size(); ++i) {
      std::vector<int32_t> kept;
      for (int32_t unit = 0; unit < groups[i].units; ++unit) {
        if (unit % 3 != 1) kept.push_back(unit);
      }
      zeroed = WithZeros(groups[i], kept, std::move(zeroed));
      pruned = WithUnits(groups[i], kept, std::move(pruned));
      of.spec.sizes[i] = static_cast<int32_t>(kept.size());
    }

    const at::Tensor images = Images(of);
    const at::Tensor expected = Evaluate(whole, zeroed, images);
    const at::Tensor got = Evaluate(
        DescribeModel(of.spec, of.shape, of.classes).value(), pruned, images);

    EXPECT_GT(expected.std().item<float>(), 0.01) << name;
    EXPECT_LT((got - expected).abs().max().item<float>(), kTolerance) << name;
  }
}

// In the folder that `variable` names; tests/run.sh --nightly sets it.
void ExpectLogitsOfAll(const char* variable,
                       const std::vector<const char*>& names) {
  const char* const folder = std::getenv(variable);
  if (folder == nullptr) GTEST_SKIP() << variable << " names no folder";
  for (const char* name : names) {
    ExpectLogitsOf(std::filesystem::path(folder) / absl::StrCat(name, ".txt"));
  }
}

TEST(Logits, OfRealSizesAreTorchvisions) {
  ExpectLogitsOfAll("PACELINE_TORCHVISION_LOGITS",
                    {"vit_b_16", "resnet18", "resnet50", "vgg11", "vgg16"});
}

TEST(Logits, OfRealLanguageModelsAreThoseOfTheFormulas) {
  ExpectLogitsOfAll("PACELINE_LANGUAGE_LOGITS",
                    {"gpt2", "bert_base", "roberta_base"});
}

}  // namespace
}  // namespace paceline
