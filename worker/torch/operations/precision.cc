#include "worker/torch/operations/precision.h"

#include <dlfcn.h>

#include "torch/torch.h"

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
    // For training too, whoever asks first: the way back to the parameter is
    // part of it, and a graph has no room for a tensor of inference.
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

}  // namespace paceline
