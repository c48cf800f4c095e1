// A dense tensor in host memory, without LibTorch.  Links, data sources and
// weights files pass such tensors to one another.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/base/dtype.h"

namespace paceline {

using Shape = std::vector<int64_t>;

// Product of the dimensions; 1 for a scalar, -1 when it overflows int64 or a
// dimension is negative.
int64_t NumElements(absl::Span<const int64_t> shape);

// Bytes of a tensor; -1 when they overflow int64 or a dimension is negative.
int64_t TensorBytes(DType dtype, absl::Span<const int64_t> shape);

// [samples, ...sample]
Shape Batched(int64_t samples, absl::Span<const int64_t> sample);

// Row-major and contiguous.  A value type: copies share the memory, which no
// thread may write once the tensor was handed on.
struct Tensor {
  DType dtype = DType::kUnspecified;
  Shape shape;
  // Shared because a sent tensor is at the same time kept for backward, in a
  // gRPC slice on its way out, and in the queue of frames not yet acknowledged;
  // the last one frees it.
  std::shared_ptr<uint8_t> data;

  int64_t bytes() const { return TensorBytes(dtype, shape); }

  // Memory aligned to 64 bytes, not initialised.
  static Tensor Allocate(DType dtype, Shape shape);
  static Tensor Zeros(DType dtype, Shape shape);

  template <typename T>
  absl::Span<T> As() {
    return {reinterpret_cast<T*>(data.get()),
            static_cast<size_t>(NumElements(shape))};
  }
  template <typename T>
  absl::Span<const T> As() const {
    return {reinterpret_cast<const T*>(data.get()),
            static_cast<size_t>(NumElements(shape))};
  }
};

using TensorList = std::vector<Tensor>;

}  // namespace paceline
