#include "core/weights/load.h"

#include <bit>
#include <optional>

#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"
#include "tests/support/temp_folder.h"
#include "tests/support/write_safetensors.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class LoadWeightsTest : public ::testing::Test {
 protected:
  LoadWeightsTest() {
    spec_ = DefaultModel("resnet18");
    spec_.width = 4;
    spec_.weights = folder_.Path("w.safetensors");
    model_ = DescribeModel(spec_, {3, 32, 32}, 10).value();
    layers_ = static_cast<int>(model_.layers.size());
  }

  // Tensor i of the model holds i everywhere.
  std::vector<NamedTensor> Numbered() const {
    std::vector<NamedTensor> tensors;
    for (const Layer& layer : model_.layers) {
      for (const Parameter& parameter : layer.parameters) {
        Tensor tensor = Tensor::Allocate(parameter.dtype, parameter.shape);
        const auto number = static_cast<float>(tensors.size());
        if (parameter.dtype == DType::kI64) {
          tensor.As<int64_t>()[0] = static_cast<int64_t>(tensors.size());
        } else {
          for (float& value : tensor.As<float>()) value = number;
        }
        tensors.push_back({parameter.name, tensor});
      }
    }
    return tensors;
  }
  void Write(const std::vector<NamedTensor>& tensors) const {
    WriteSafetensors(spec_.weights, tensors);
  }
  // Reads the tensors of the layers in `range`; those of all without.
  std::vector<NamedTensor> Loaded(std::optional<LayerRange> range = {}) const {
    return Value(
        LoadWeights(spec_, model_, range.value_or(LayerRange{0, layers_})));
  }
  std::string WhyNot() const {
    const auto loaded = LoadWeights(spec_, model_, {0, layers_});
    return loaded.ok() ? "nothing" : std::string(loaded.status().message());
  }

  const TempFolder folder_;
  ModelSpec spec_;
  ModelDescription model_;
  int layers_ = 0;
};

// The learning rate was blamed for them.
TEST_F(LoadWeightsTest, RefusesValuesThatAreNotFinite) {
  for (const float value : {std::nanf(""), HUGE_VALF}) {
    std::vector<NamedTensor> tensors = Numbered();
    const auto bad = tensors.end() - 2;
    ASSERT_EQ(bad->tensor.dtype, DType::kF32);
    bad->tensor.As<float>().back() = value;
    Write(tensors);

    EXPECT_THAT(WhyNot(),
                AllOf(HasSubstr(spec_.weights),
                      HasSubstr(bad->name + " holds NaN or infinity")));
  }
}

TEST_F(LoadWeightsTest, ReadsWhatTheLayersOwnAndNothingElse) {
  Write(Numbered());

  const auto loaded = Loaded(LayerRange{1, 2});

  std::vector<std::string> names, need;
  for (const NamedTensor& named : loaded) names.push_back(named.name);
  for (const Parameter& parameter : model_.layers[1].parameters) {
    need.push_back(parameter.name);
  }
  EXPECT_EQ(names, need);
  const auto all = Loaded();
  ASSERT_EQ(all.size(), Numbered().size());
  EXPECT_EQ(all[5].name, "bn1.num_batches_tracked");
  EXPECT_EQ(all[5].tensor.As<int64_t>()[0], 5) << "a count, as it is";
  const float first = static_cast<float>(model_.layers[0].parameters.size());
  EXPECT_EQ(loaded.front().tensor.As<float>()[0], first);
}

TEST_F(LoadWeightsTest, LeavesAResetHeadOut) {
  Write(Numbered());
  spec_.reset_head = true;

  EXPECT_TRUE(Loaded(LayerRange{layers_ - 1, layers_}).empty());
}

TEST_F(LoadWeightsTest, WidensShortFloatsExactly) {
  std::vector<NamedTensor> tensors = Numbered();
  // 1, -2, the smallest subnormal, and the greatest.
  const std::vector<uint16_t> half = {0x3c00, 0xc000, 0x0001, 0x7bff};
  const std::vector<uint16_t> brain = {0x3f80, 0xc000, 0x0001, 0x7f7f};
  const auto put = [&](size_t i, DType dtype, const std::vector<uint16_t>& v) {
    Tensor tensor = Tensor::Allocate(dtype, tensors[i].tensor.shape);
    const auto to = tensor.As<uint16_t>();
    for (size_t j = 0; j < to.size(); ++j) to[j] = v[j % v.size()];
    tensors[i].tensor = tensor;
  };
  put(0, DType::kF16, half);
  put(6, DType::kBF16, brain);
  Write(tensors);

  const auto loaded = Loaded();

  EXPECT_EQ(loaded[0].tensor.dtype, DType::kF32);
  EXPECT_THAT(loaded[0].tensor.As<float>().first(4),
              ElementsAre(1, -2, 0x1p-24f, 65504));
  EXPECT_THAT(loaded[6].tensor.As<float>().first(3),
              ElementsAre(1, -2, std::bit_cast<float>(uint32_t{0x00010000})));
}

TEST_F(LoadWeightsTest, NamesTheFileAndAllThatIsWrongWithIt) {
  std::vector<NamedTensor> tensors = Numbered();
  tensors[0].name = "stem.weight";
  tensors[1].tensor = Tensor::Allocate(DType::kF32, {5});
  Write(tensors);

  EXPECT_THAT(
      WhyNot(),
      AllOf(HasSubstr("w.safetensors: "), HasSubstr("conv1.weight"),
            HasSubstr("stem.weight"), HasSubstr("bn1.weight [5], need [4]")));
}

TEST_F(LoadWeightsTest, NamesAShardByItsName) {
  spec_.weights = folder_.Path("model-00001-of-00003.safetensors");
  std::vector<NamedTensor> some = Numbered();
  some.resize(5);
  Write(some);
  EXPECT_THAT(WhyNot(), HasSubstr("it is one shard of 3"));

  spec_.weights = folder_.Path("model-00001-of-00001.safetensors");
  Write(some);
  EXPECT_THAT(WhyNot(), Not(HasSubstr("shard")));
}

TEST_F(LoadWeightsTest, TakesWrappersOffTheNames) {
  for (const char* const wrapper :
       {"module.", "_orig_mod.", "module._orig_mod.", "model._orig_mod."}) {
    std::vector<NamedTensor> tensors = Numbered();
    for (NamedTensor& each : tensors) each.name = wrapper + each.name;
    Write(tensors);

    const auto loaded = Loaded();

    ASSERT_EQ(loaded.size(), tensors.size()) << wrapper;
    EXPECT_EQ(loaded.front().name, Numbered().front().name);
  }
}

TEST_F(LoadWeightsTest, ComparesWhatTheyWereMadeWithAndReadsNothingElse) {
  model_.made_with = {{"data.mean", "[0.5]"}, {"model.dropout", "0.1"}};
  WriteSafetensors(spec_.weights, Numbered(),
                   {{"data.mean", "[0.5]"}, {"model.dropout", "0"}});
  WeightsOrigin origin;

  EXPECT_TRUE(Value(LoadWeights(spec_, model_, {0, 0}, &origin)).empty());
  EXPECT_EQ(origin.metadata.at("data.mean"), "[0.5]");
  EXPECT_THAT(origin.notes, ElementsAre(AllOf(HasSubstr(spec_.weights),
                                              HasSubstr("model.dropout 0, "))));

  model_.made_with["data.mean"] = "[0.25]";
  EXPECT_THAT(WhyNot(), AllOf(HasSubstr(spec_.weights),
                              HasSubstr("data.mean [0.5], and the job has")));
}

TEST_F(LoadWeightsTest, AWorkerWithOtherLayersSaysTheSame) {
  std::vector<NamedTensor> tensors = Numbered();
  tensors.pop_back();
  Write(tensors);

  const auto first = LoadWeights(spec_, model_, {0, 1});
  const auto last = LoadWeights(spec_, model_, {layers_ - 1, layers_});

  EXPECT_FALSE(first.ok());
  EXPECT_EQ(first.status(), last.status());
}

// A language model, whose first and last layers compute with one tensor.
class LoadTiedWeightsTest : public LoadWeightsTest {
 protected:
  LoadTiedWeightsTest() {
    const std::string weights = spec_.weights;
    spec_ = DefaultModel("gpt");
    spec_.depth = 1;
    spec_.width = 4;
    spec_.heads = 2;
    spec_.weights = weights;
    model_ = DescribeModel(spec_, {6}, 9).value();
    layers_ = static_cast<int>(model_.layers.size());
  }

  // The file's tensors, and the tied one under its second name.
  std::vector<NamedTensor> Twice(float second) const {
    std::vector<NamedTensor> tensors = Numbered();
    Tensor tensor = Tensor::Allocate(DType::kF32, {9, 4});
    for (float& value : tensor.As<float>()) value = second;
    tensors.push_back({"lm_head.weight", tensor});
    return tensors;
  }
};

// A file may have the tensor under its first name, under its second one, as
// safetensors' save_model() writes it, or under both, if they are equal.
TEST_F(LoadTiedWeightsTest, BothEndsReadTheTensorOnceUnderEitherName) {
  std::vector<NamedTensor> second = Twice(7);
  std::erase_if(second, [](const NamedTensor& named) {
    return named.name == "transformer.wte.weight";
  });
  // Numbered() has 0 in the first tensor.
  const std::pair<std::vector<NamedTensor>, float> files[] = {
      {Numbered(), 0}, {second, 7}, {Twice(0), 0}};
  for (const auto& [tensors, value] : files) {
    Write(tensors);
    for (const LayerRange range : {LayerRange{0, 1}, {layers_ - 1, layers_}}) {
      int tied = 0;
      for (const NamedTensor& named : Loaded(range)) {
        EXPECT_NE(named.name, "lm_head.weight");
        if (named.name != "transformer.wte.weight") continue;
        ++tied;
        EXPECT_EQ(named.tensor.As<float>()[0], value);
      }
      EXPECT_EQ(tied, 1);
    }
  }
}

TEST_F(LoadTiedWeightsTest, RefusesASecondNameThatDiffers) {
  std::vector<NamedTensor> tensors = Twice(1);
  Write(tensors);
  EXPECT_THAT(WhyNot(),
              HasSubstr("lm_head.weight and transformer.wte.weight differ"));
  tensors.back().tensor = Tensor::Allocate(DType::kF32, {9, 5});
  Write(tensors);
  EXPECT_THAT(WhyNot(), HasSubstr("lm_head.weight [9, 5], need [9, 4]"));
}

// openai-community/gpt2's file has the trunk alone.
TEST_F(LoadTiedWeightsTest, ReadsAPublishedTrunkUnderTheModelsNames) {
  Write(Numbered());
  const auto ours = Loaded();
  std::vector<NamedTensor> tensors = Numbered();
  for (NamedTensor& named : tensors) {
    ASSERT_TRUE(named.name.starts_with("transformer.")) << named.name;
    named.name = named.name.substr(std::string("transformer.").size());
  }
  tensors.push_back({"h.0.attn.bias", Tensor::Allocate(DType::kU8, {1, 4})});
  Write(tensors);

  const auto theirs = Loaded();

  ASSERT_EQ(theirs.size(), ours.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(theirs[i].name, ours[i].name);
    EXPECT_EQ(theirs[i].tensor.As<float>()[0], ours[i].tensor.As<float>()[0]);
  }
  EXPECT_LT(Loaded(LayerRange{layers_ - 1, layers_}).size(), ours.size());
}

}  // namespace
}  // namespace paceline
