// The backward of a layer in two halves against a whole one.
#include "worker/torch/split_backward.h"

#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "torch/torch.h"
#include "worker/torch/engine.h"

namespace paceline {
namespace {

using Forward = std::function<std::vector<at::Tensor>(const at::Tensor& x,
                                                      const at::Tensor& w)>;

// Gradients of the input of three micro-batches, then of the weight: an odd
// count and values without pattern, so that a sum in another order has other
// bytes.
std::vector<at::Tensor> GradientsOf(const Forward& forward, bool in_halves) {
  SetComputeThreads(1);
  torch::manual_seed(3);
  const at::Tensor w = (at::rand({6, 6}) - 0.5).set_requires_grad(true);
  std::vector<WeightHalf> halves;
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = (at::rand({4, 6}) - 0.5).set_requires_grad(true);
    const Trace trace{{x}, forward(x, w)};
    Gradients of_outputs;
    for (const at::Tensor& output : trace.outputs) {
      of_outputs.push_back(at::rand_like(output.detach()));
    }
    gradients.push_back(
        in_halves ? BackwardInput(trace, of_outputs, &halves.emplace_back())[0]
                  : WholeBackward(trace, of_outputs)[0]);
  }
  for (WeightHalf& half : halves) BackwardWeight(std::move(half));
  gradients.push_back(w.grad());
  return gradients;
}

void ExpectTheSameBytes(const Forward& forward) {
  const auto whole = GradientsOf(forward, false);
  const auto halves = GradientsOf(forward, true);
  ASSERT_EQ(whole.size(), halves.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(whole[i].equal(halves[i])) << i;
  }
}

TEST(SplitBackward, HasTheSameBytes) {
  // A parameter that is used twice.
  ExpectTheSameBytes([](const at::Tensor& x, const at::Tensor& w) {
    return std::vector<at::Tensor>{at::mm(at::relu(at::mm(x, w)), w)};
  });
  // A tensor that comes from the parameter alone has one graph, which a
  // backward lets go of.
  ExpectTheSameBytes([](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor shared = at::tanh(w);
    return std::vector<at::Tensor>{at::mm(at::relu(at::mm(x, shared)), shared)};
  });
  // A parameter that is an output too.
  ExpectTheSameBytes([](const at::Tensor& x, const at::Tensor& w) {
    return std::vector<at::Tensor>{at::mm(x, w), at::tanh(w)};
  });
}

// Both ways to the parameter begin at one place: nothing keeps the halves from
// being two.
TEST(SplitBackward, IsInHalvesWhereOnePlaceLeadsToAParameterTwice) {
  const Forward forward = [](const at::Tensor& x, const at::Tensor& w) {
    return std::vector<at::Tensor>{at::mm(x, at::tanh(w) * w)};
  };
  ExpectTheSameBytes(forward);
  const at::Tensor w = at::ones({2, 2}).set_requires_grad(true);
  const at::Tensor x = at::ones({1, 2}).set_requires_grad(true);
  WeightHalf rest;

  BackwardInput({{x}, forward(x, w)}, {at::ones({1, 2})}, &rest);

  EXPECT_FALSE(w.grad().defined());
  BackwardWeight(std::move(rest));
  EXPECT_TRUE(w.grad().defined());
}

// A layer that hands one input on, uses it too, and has an output that no input
// leads to.
TEST(SplitBackward, KnowsWhatIsHandedOnAndWhatIsOnlyTheWeights) {
  SetComputeThreads(1);
  const Gradients gradients = {at::full({2}, 10.0), at::full({2}, 100.0),
                               at::full({2}, 1000.0)};
  const auto leaf = [](double value) {
    return at::full({2}, value).set_requires_grad(true);
  };
  struct Weights {
    at::Tensor inside, alone;
  };
  const Weights of_whole{leaf(2), leaf(2)}, of_halves{leaf(2), leaf(2)};
  const auto trace = [&](const Weights& weights) {
    const at::Tensor x = leaf(1), beside = leaf(3);
    return Trace{{x, beside},
                 {x * beside * weights.inside, beside, weights.alone * 5}};
  };

  WeightHalf rest;
  const Gradients halves = BackwardInput(trace(of_halves), gradients, &rest);
  EXPECT_FALSE(of_halves.inside.grad().defined());
  EXPECT_FALSE(of_halves.alone.grad().defined());
  BackwardWeight(std::move(rest));
  const Gradients whole = WholeBackward(trace(of_whole), gradients);

  EXPECT_TRUE(halves[0].equal(at::full({2}, 60.0))) << halves[0];
  EXPECT_TRUE(halves[1].equal(at::full({2}, 120.0))) << halves[1];
  EXPECT_TRUE(whole[0].equal(halves[0]) && whole[1].equal(halves[1]));
  EXPECT_TRUE(of_halves.inside.grad().equal(at::full({2}, 30.0)));
  EXPECT_TRUE(of_halves.alone.grad().equal(at::full({2}, 5000.0)));
  EXPECT_TRUE(of_whole.inside.grad().equal(of_halves.inside.grad()));
  EXPECT_TRUE(of_whole.alone.grad().equal(of_halves.alone.grad()));
}

}  // namespace
}  // namespace paceline
