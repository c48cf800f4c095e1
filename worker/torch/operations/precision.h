// Matrix products and convolutions in a job's precision, and a linear map whose
// parameters' gradients come before that of its input.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "ATen/ATen.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// Memory in which a step's sums of gradients lie.  Used on the compute thread.
struct Sums {
  // The first gradient of a leaf, as long as it has no .grad(), may be written
  // here; the tensor becomes its .grad().
  std::unordered_map<const c10::TensorImpl*, at::Tensor> of;
  // Values [begin, end) of such a sum were written.
  std::function<void(const float* begin, const float* end)> on_written;
};

// As at::linear, for a weight of two dimensions.  Autograd computes the
// gradient of the input first, and hands a weight's on when it is whole.  In
// a group the gradients of parameters have a network to cross: here they come
// first, and those that go into `sums` piece by piece, from the end.
// `sums` outlives the graph.
at::Tensor SummingLinear(const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias, const Sums& sums);

// Whether oneDNN computes with this CPU's bf16 instructions, or would: the CPU
// has them, and ONEDNN_MAX_CPU_ISA does not hide them.
bool HasBf16Instructions();

// Does what autocast does on CPUs: under bf16 products and convolutions take
// bfloat16 and give it, and everything else that comes into them is cast.
// Autocast itself would cast a weight for every micro-batch and keep
// each of these copies until the backward; here a weight is cast once a
// version.  It would also leave softmax and norms in bfloat16, or refuse them
// (LibTorch 1.13, layer_norm).
//
// Where oneDNN has no bf16 instructions, operands are rounded to bfloat16,
// computed with in float32, and the result is rounded; all these tensors are
// float32.  LibTorch's own loops for bfloat16 would take tens of times as long,
// and it asks oneDNN for kernels in bfloat16 that ONEDNN_MAX_CPU_ISA forbids
// (gelu at AVX2 throws).
//
// Lives on the compute thread.
class Products {
 public:
  // native: whether the CPU's bf16 instructions may be used.
  explicit Products(Precision precision, bool native = HasBf16Instructions());

  // As at::linear, at::conv2d and at::matmul.  `weight` and `bias` are leaves
  // of a layer: their casts stay until Forget(), as Refresh() leaves them.  Of
  // a linear map's weight all dimensions but the first count as one.
  at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& bias);
  at::Tensor Conv2d(const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& bias, at::IntArrayRef stride,
                    at::IntArrayRef padding);
  at::Tensor Matmul(const at::Tensor& left, const at::Tensor& right);
  // x W + b over the last dimension, with a weight [in, out].
  at::Tensor Conv1d(const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& bias);

  // For a backward that is written by hand.  What Linear() makes of a weight,
  // as it is now; and Matmul() with such a one on the right.
  at::Tensor Cast(const at::Tensor& weight) { return Parameter(weight); }
  at::Tensor MatmulCast(const at::Tensor& left, const at::Tensor& cast);

  // `parameter` has new values.  The code that writes to a parameter's memory
  // calls this, when no graph needs the old values any more.  It computes the
  // parameter's cast, if there is one, again in the same place: in the update,
  // once a step.
  void Refresh(const at::Tensor& parameter);
  // `parameter` is gone, or not needed for now.
  void Forget(const at::Tensor& parameter);
  void ForgetAll() { casts_.clear(); }

  // Where first gradients of parameters may be written: SummingLinear().
  Sums& sums() { return sums_; }

  // Copies of parameters that are there.
  int64_t cast_bytes() const;

 private:
  enum class Kind : uint8_t { kF32, kBf16, kRounded };

  struct CastOfParameter {
    at::Tensor parameter;  // holds the key's place
    at::Tensor value;
  };

  at::Tensor Operand(const at::Tensor& x) const;
  at::Tensor Result(at::Tensor y) const;
  at::Tensor Parameter(const at::Tensor& parameter);

  const Kind kind_;
  std::unordered_map<const c10::TensorImpl*, CastOfParameter> casts_;
  Sums sums_;
};

// For norms, softmax and losses: as it is where it is float32.
at::Tensor AsFloat(const at::Tensor& x);

}  // namespace paceline
