// Our LSTM against LibTorch's.
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "torch/torch.h"
#include "worker/torch/engine.h"
#include "worker/torch/operations/computations.h"
#include "worker/torch/split_backward.h"

namespace paceline {
namespace {

constexpr int64_t kTokens = 7;
constexpr int64_t kSamples = 3;
constexpr int64_t kIn = 5;
constexpr int64_t kWidth = 6;

// LibTorch's, one direction, [tokens, samples, in].
torch::nn::LSTM MakeLstm() {
  SetComputeThreads(1);
  torch::manual_seed(1);
  return torch::nn::LSTM(torch::nn::LSTMOptions(kIn, kWidth));
}

struct Ours {
  std::vector<at::Tensor> parameters;  // in LibTorch's order

  explicit Ours(torch::nn::LSTM& lstm) {
    for (const at::Tensor& each : lstm->parameters()) {
      parameters.push_back(each.detach().clone().set_requires_grad(true));
    }
  }

  at::Tensor Run(const at::Tensor& x, Products& products) const {
    const at::Tensor gates =
        AsFloat(products.Linear(x, parameters[0], parameters[2]));
    return RunLstm(gates, parameters[1], parameters[3], products);
  }
};

at::Tensor Leaf(at::IntArrayRef shape) {
  return (at::rand(shape) - 0.5).set_requires_grad(true);
}

TEST(RunLstm, IsLibTorchsLstmWithItsGradients) {
  torch::nn::LSTM lstm = MakeLstm();
  const Ours ours(lstm);
  Products products(Precision::kF32);
  const at::Tensor x = Leaf({kTokens, kSamples, kIn});
  const at::Tensor theirs_x = x.detach().clone().set_requires_grad(true);
  const at::Tensor weights = at::rand({kTokens, kSamples, kWidth});

  const at::Tensor states = ours.Run(x, products);
  const at::Tensor theirs = std::get<0>(lstm->forward(theirs_x));
  (states * weights).sum().backward();
  (theirs * weights).sum().backward();

  EXPECT_TRUE(at::allclose(states, theirs, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(x.grad(), theirs_x.grad(), 1e-4, 1e-6));
  for (size_t i = 0; i < ours.parameters.size(); ++i) {
    EXPECT_TRUE(at::allclose(ours.parameters[i].grad(),
                             lstm->parameters()[i].grad(), 1e-4, 1e-6))
        << i;
  }
}

TEST(RunLstm, OfOneTokenToo) {
  torch::nn::LSTM lstm = MakeLstm();
  const Ours ours(lstm);
  Products products(Precision::kF32);
  const at::Tensor x = Leaf({1, kSamples, kIn});

  const at::Tensor states = ours.Run(x, products);
  states.sum().backward();

  EXPECT_TRUE(at::allclose(states, std::get<0>(lstm->forward(x)), 1e-5, 1e-6));
  EXPECT_TRUE(x.grad().defined());
  EXPECT_TRUE(ours.parameters[1].grad().eq(0).all().item<bool>())
      << "states of 0 give the weight no gradient";
}

TEST(RunLstm, GivesTheSameStatesWithoutAGraph) {
  torch::nn::LSTM lstm = MakeLstm();
  const Ours ours(lstm);
  Products products(Precision::kF32);
  const at::Tensor x = Leaf({kTokens, kSamples, kIn});
  const at::Tensor states = ours.Run(x, products);

  const c10::InferenceMode no_graph;

  EXPECT_TRUE(ours.Run(x, products).equal(states));
}

// Two micro-batches, so that a sum in another order would show.
std::vector<at::Tensor> GradientsOfTwo(bool in_halves, Precision precision) {
  torch::nn::LSTM lstm = MakeLstm();
  const Ours ours(lstm);
  Products products(precision);
  std::vector<WeightHalf> halves;
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor x = Leaf({kTokens, kSamples, kIn});
    const at::Tensor gradient = at::rand({kTokens, kSamples, kWidth});
    const Trace trace{{x}, {ours.Run(x, products)}};
    gradients.push_back(
        in_halves ? BackwardInput(trace, {gradient}, &halves.emplace_back())[0]
                  : WholeBackward(trace, {gradient})[0]);
  }
  if (in_halves) {
    EXPECT_FALSE(ours.parameters[1].grad().defined());
  }
  for (WeightHalf& half : halves) BackwardWeight(std::move(half));
  for (const at::Tensor& each : ours.parameters) {
    gradients.push_back(each.grad());
  }
  return gradients;
}

TEST(RunLstm, GivesTheSameBytesInTwoHalves) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const auto whole = GradientsOfTwo(false, precision);
    const auto halves = GradientsOfTwo(true, precision);

    ASSERT_EQ(whole.size(), halves.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(whole[i].equal(halves[i])) << i;
    }
  }
}

TEST(RunLstm, InBf16IsNearFloat32AndHasFloat32Gradients) {
  const auto fp32 = GradientsOfTwo(false, Precision::kF32);
  const auto bf16 = GradientsOfTwo(false, Precision::kBf16);

  for (size_t i = 0; i < fp32.size(); ++i) {
    EXPECT_EQ(bf16[i].scalar_type(), at::kFloat);
    EXPECT_FALSE(bf16[i].equal(fp32[i])) << i;
    const double scale = fp32[i].abs().max().item<double>();
    EXPECT_LT((bf16[i] - fp32[i]).abs().max().item<double>(), 0.05 * scale)
        << i;
  }
}

}  // namespace
}  // namespace paceline
