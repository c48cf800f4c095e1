// Between our tensors and LibTorch's without a copy: both ways the memory is
// shared and lives as long as either side needs it.  Thread-safe.
#pragma once

#include "ATen/ATen.h"
#include "core/base/tensor.h"

namespace paceline {

// float32, int64, int32 or uint8; other types throw.
at::ScalarType ToTorch(DType dtype);

// Views `tensor`.  Writing through the result is for its owner alone.
at::Tensor ToTorch(const Tensor& tensor);

// Views `tensor`, which must be contiguous and float32 or int64.
Tensor FromTorch(const at::Tensor& tensor);

}  // namespace paceline
