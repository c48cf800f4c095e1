// Between our tensors and LibTorch's without a copy: both ways the memory is
// shared and lives as long as either side needs it.  Thread-safe.
#pragma once

#include "ATen/ATen.h"
#include "core/base/tensor.h"

namespace paceline {

// kUnspecified throws.
at::ScalarType ToTorch(DType dtype);

// kUnspecified for types that we do not have.
DType FromTorch(at::ScalarType type);

// Views `tensor`.  Writing through the result is for its owner alone.
at::Tensor ToTorch(const Tensor& tensor);

// Views `tensor`, which must be contiguous and float32 or int64.
Tensor FromTorch(const at::Tensor& tensor);

}  // namespace paceline
