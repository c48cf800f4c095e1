// bf16: the same bytes on every cut, near fp32, float32 where it must be.
#include "worker/torch/operations/precision.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/torch/in_process_pipeline.h"
#include "torch/torch.h"

namespace paceline {
namespace {

Experiment InBf16(Experiment experiment) {
  experiment.job.precision = "bf16";
  return experiment;
}

class Bf16SameBytes : public ::testing::TestWithParam<const char*> {};

// gpt's output has the embedding's weights: cast anew when they have come.
TEST_P(Bf16SameBytes, OnEveryCutAndSchedule) {
  ExpectSameBytesOnEveryCut(InBf16(RichExperiment(GetParam())), {2, 4});
}

INSTANTIATE_TEST_SUITE_P(Models, Bf16SameBytes,
                         ::testing::Values("lenet", "vit", "resnet18", "gpt",
                                           "gnmt"),
                         kNameOfModel);

TEST(Bf16, EveryModelComputesOtherwiseThanInFp32AndNearIt) {
  for (const std::string name : kSmallModels) {
    const Experiment experiment = SmallExperiment(name);

    const Outcome fp32 = InProcessPipeline(experiment).Run();
    const Outcome bf16 = InProcessPipeline(InBf16(experiment)).Run();

    ASSERT_EQ(bf16.losses.size(), fp32.losses.size());
    EXPECT_NE(bf16.losses, fp32.losses) << name;
    // The losses of the first step: later ones drift apart.  Fifty layers that
    // normalise over three samples magnify every rounding.
    const double error = name == "resnet50" ? 0.25 : 0.03;
    EXPECT_NEAR(bf16.losses[0], fp32.losses[0], error * fp32.losses[0]) << name;
  }
}

TEST(Bf16, EveryModelLearns) {
  for (const std::string name : {"mlp", "lenet", "vit", "resnet18"}) {
    Experiment experiment = InBf16(SmallExperiment(name));
    experiment.job.train.optimizer.name = "adamw";
    experiment.job.train.learning_rate.base = 0.003;
    experiment.job.train.epochs = 20;
    experiment.job.train.micro_batch = 8;

    const Outcome outcome = InProcessPipeline(experiment).Run();

    EXPECT_LT(outcome.losses.back(), 0.7 * outcome.losses.front()) << name;
  }
}

at::Tensor Random(at::IntArrayRef shape, double scale = 1) {
  return (at::rand(shape) - 0.5) * scale;
}

class ProductsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetComputeThreads(1);
    torch::manual_seed(1);
  }
};

TEST_F(ProductsTest, InFp32AreLibTorchsOwn) {
  Products products(Precision::kF32);
  const at::Tensor x = Random({4, 8}), w = Random({6, 8}), b = Random({6});

  EXPECT_TRUE(products.Linear(x, w, b).equal(at::linear(x, w, b)));
  EXPECT_TRUE(products.Matmul(x, w.t()).equal(at::matmul(x, w.t())));
  EXPECT_EQ(products.cast_bytes(), 0);
}

// With or without such instructions: operands and results are bfloat16's, and
// sums are not.
TEST_F(ProductsTest, InBf16RoundOperandsAndResults) {
  std::vector<bool> kinds = {false};
  if (HasBf16Instructions()) kinds.push_back(true);
  for (const bool native : kinds) {
    Products products(Precision::kBf16, native);
    const at::Tensor x = Random({4, 512}), w = Random({6, 512}),
                     b = Random({6});
    const auto rounded = [](const at::Tensor& t) {
      return t.to(at::kBFloat16).to(at::kDouble);
    };
    const at::Tensor exact = at::linear(rounded(x), rounded(w), rounded(b));

    const at::Tensor y = products.Linear(x, w, b);

    EXPECT_EQ(y.scalar_type(), native ? at::kBFloat16 : at::kFloat);
    EXPECT_TRUE(rounded(y).equal(y.to(at::kDouble))) << native;
    const double error = (y.to(at::kDouble) - exact).abs().max().item<double>();
    // Half a last place of the largest value, and a little of its own.
    EXPECT_LE(error, 0.005 * exact.abs().max().item<double>()) << native;
  }
}

TEST_F(ProductsTest, GradientsOfParametersAreSummedInFloat32) {
  for (const bool native : {false, HasBf16Instructions()}) {
    Products products(Precision::kBf16, native);
    at::Tensor w = Random({3, 5}).set_requires_grad(true);
    const at::Tensor x = Random({2, 5});

    for (int i = 0; i < 3; ++i) {
      AsFloat(products.Linear(x, w, {})).sum().backward();
    }

    EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
    const at::Tensor expected = 3 * at::ones({3, 2}).matmul(x);
    EXPECT_LT((w.grad() - expected).abs().max().item<double>(), 0.05);
  }
}

TEST_F(ProductsTest, CastAParameterOnceAVersion) {
  Products products(Precision::kBf16);
  at::Tensor w = at::ones({2, 2}).set_requires_grad(true);
  const at::Tensor x = at::ones({1, 2});
  const float before = products.Linear(x, w, {})[0][0].item<float>();
  const int64_t bytes = products.cast_bytes();
  EXPECT_GT(bytes, 0);

  // As an update writes: autograd sees nothing of it.
  w.data_ptr<float>()[0] = 3;
  EXPECT_EQ(products.Linear(x, w, {})[0][0].item<float>(), before);
  products.Refresh(w);
  EXPECT_EQ(products.Linear(x, w, {})[0][0].item<float>(), before + 2);
  EXPECT_EQ(products.cast_bytes(), bytes);

  w.data_ptr<float>()[0] = 5;
  products.Forget(w);
  EXPECT_EQ(products.cast_bytes(), 0);
  EXPECT_EQ(products.Linear(x, w, {})[0][0].item<float>(), before + 4);
}

TEST_F(ProductsTest, ACastOfAnEvaluationServesTraining) {
  Products products(Precision::kBf16);
  at::Tensor w = at::ones({2, 2}).set_requires_grad(true);
  const at::Tensor x = at::ones({1, 2});
  {
    const c10::InferenceMode inference;
    products.Linear(x, w, {});
  }

  AsFloat(products.Linear(x, w, {})).sum().backward();

  EXPECT_TRUE(w.grad().equal(at::ones({2, 2})));
}

}  // namespace
}  // namespace paceline
