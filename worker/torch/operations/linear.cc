#include "worker/torch/operations/linear.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/functions/utils.h"
#include "torch/torch.h"

namespace paceline {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// So many of a weight's gradient are computed before they are handed on.
constexpr int64_t kPieceValues = int64_t{1} << 18;

at::Tensor AsRows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// From the gradient of the output to those of weight and bias.  The way to the
// input goes through it, and on to a node that autograd runs later.
class ParametersFirst final : public Node {
 public:
  ParametersFirst(at::Tensor x, at::Tensor weight, at::Tensor bias,
                  const Sums& sums)
      : x_(std::move(x)),
        weight_(std::move(weight)),
        bias_(std::move(bias)),
        sums_(sums) {}

  variable_list apply(variable_list&& gradients) override {
    variable_list found(3);  // output, weight, bias
    if (!gradients[0].defined()) return found;
    const at::Tensor rows = AsRows(gradients[0]);
    if (task_should_compute_output(2)) found[2] = OfBias(rows);
    if (task_should_compute_output(1)) found[1] = OfWeight(rows);
    found[0] = std::move(gradients[0]);
    return found;
  }

  void release_variables() override { x_.reset(); }

 private:
  // Undefined: it is in the sum already.
  at::Tensor OfBias(const at::Tensor& rows) const {
    at::Tensor sum = SumOf(bias_);
    if (!sum.defined()) return rows.sum(0);
    at::sum_out(sum, rows, 0);
    SayWritten(sum);
    bias_.mutable_grad() = sum;
    return {};
  }

  // As above.
  at::Tensor OfWeight(const at::Tensor& rows) const {
    TORCH_CHECK(x_.defined(), "a linear map's second backward");
    const at::Tensor x = AsRows(x_);
    const at::Tensor sum = SumOf(weight_);
    if (!sum.defined()) return at::mm(rows.t(), x);
    const int64_t most = std::max<int64_t>(1, kPieceValues / sum.size(1));
    for (int64_t end = sum.size(0); end > 0;) {
      const int64_t count = std::min(end, most);
      end -= count;
      at::Tensor piece = sum.narrow(0, end, count);
      at::mm_out(piece, rows.narrow(1, end, count).t(), x);
      SayWritten(piece);
    }
    weight_.mutable_grad() = sum;
    return {};
  }

  // The memory for a first gradient, if it may be written there.
  at::Tensor SumOf(const at::Tensor& parameter) const {
    const auto found = sums_.of.find(parameter.unsafeGetTensorImpl());
    return found == sums_.of.end() || parameter.grad().defined()
               ? at::Tensor()
               : found->second;
  }

  void SayWritten(const at::Tensor& piece) const {
    const float* const begin = piece.data_ptr<float>();
    sums_.on_written(begin, begin + piece.numel());
  }

  at::Tensor x_;
  const at::Tensor weight_;
  const at::Tensor bias_;
  const Sums& sums_;
};

}  // namespace

at::Tensor SummingLinear(const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias, const Sums& sums) {
  if (!torch::autograd::compute_requires_grad(weight, bias)) {
    return at::linear(x, weight, bias);
  }
  const at::Tensor way =
      at::linear(x, weight.detach(), bias.defined() ? bias.detach() : bias);
  const std::shared_ptr<Node> node(
      new ParametersFirst(x.detach(), weight, bias, sums),
      torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(way, weight, bias));
  at::Tensor y = way.variable_data();
  torch::autograd::create_gradient_edge(y, node);
  return y;
}

}  // namespace paceline
