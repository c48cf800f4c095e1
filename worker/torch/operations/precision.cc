#include "worker/torch/operations/precision.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ATen/ATen.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/functions/utils.h"

namespace paceline {

// Debian's LibTorch links oneDNN's library; its headers need not be there.
bool HasBf16Instructions() {
  // dnnl_cpu_isa_t is a set of bits; dnnl_cpu_isa_avx512_core_bf16 adds this
  // one to avx512_core_vnni (oneDNN 2.6, dnnl_types.h).
  constexpr int kBf16Bit = 0x80;
  void* const found = dlsym(RTLD_DEFAULT, "dnnl_get_effective_cpu_isa");
  return found != nullptr &&
         (reinterpret_cast<int (*)()>(found)() & kBf16Bit) != 0;
}

Products::Products(Precision precision, bool native)
    : kind_(precision == Precision::kF32 ? Kind::kF32
            : native                     ? Kind::kBf16
                                         : Kind::kRounded) {}

at::Tensor AsFloat(const at::Tensor& x) { return x.to(at::kFloat); }

at::Tensor Products::Operand(const at::Tensor& x) const {
  switch (kind_) {
    case Kind::kF32:
      return x;
    case Kind::kBf16:
      return x.to(at::kBFloat16);
    case Kind::kRounded:
      return x.to(at::kBFloat16).to(at::kFloat);
  }
  return x;
}

at::Tensor Products::Result(at::Tensor y) const {
  return kind_ == Kind::kRounded ? Operand(y) : y;
}

at::Tensor Products::Parameter(const at::Tensor& parameter) {
  if (kind_ == Kind::kF32 || !parameter.defined()) return parameter;
  const auto [found, is_new] =
      casts_.try_emplace(parameter.unsafeGetTensorImpl());
  if (is_new) {
    // Even where inference asks first, the cast is made with a graph: training
    // uses the same cast, and its graph takes no tensor of inference mode.
    const c10::InferenceMode no_inference(false);
    const at::AutoGradMode with_graph(true);
    found->second = {parameter, Operand(parameter)};
  }
  return found->second.value;
}

at::Tensor Products::Linear(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
  const at::Tensor matrix = Parameter(weight);
  return Result(SummingLinear(Operand(x),
                              matrix.dim() > 2 ? matrix.flatten(1) : matrix,
                              Parameter(bias), sums_));
}

at::Tensor Products::Conv2d(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, at::IntArrayRef stride,
                            at::IntArrayRef padding) {
  return Result(at::conv2d(Operand(x), Parameter(weight), Parameter(bias),
                           stride, padding));
}

at::Tensor Products::Matmul(const at::Tensor& left, const at::Tensor& right) {
  return Result(at::matmul(Operand(left), Operand(right)));
}

at::Tensor Products::MatmulCast(const at::Tensor& left,
                                const at::Tensor& cast) {
  return Result(at::matmul(Operand(left), cast));
}

at::Tensor Products::Conv1d(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
  at::IntArrayRef sizes = x.sizes();
  std::vector<int64_t> shape(sizes.begin(), sizes.end());
  shape.back() = weight.size(1);
  const at::Tensor rows = Operand(x).reshape({-1, x.size(-1)});
  return Result(at::addmm(Parameter(bias), rows, Parameter(weight)))
      .view(shape);
}

void Products::Refresh(const at::Tensor& parameter) {
  const auto found = casts_.find(parameter.unsafeGetTensorImpl());
  if (found == casts_.end()) return;
  const at::NoGradGuard no_graph;
  found->second.value.detach().copy_(Operand(parameter));
}

void Products::Forget(const at::Tensor& parameter) {
  if (!casts_.empty()) casts_.erase(parameter.unsafeGetTensorImpl());
}

int64_t Products::cast_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, cast] : casts_) {
    bytes += static_cast<int64_t>(cast.value.nbytes());
  }
  return bytes;
}

namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Values of a weight's gradient that are computed before they are handed on.
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
