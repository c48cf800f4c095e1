#include "worker/torch/tensor_bridge.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {

at::ScalarType ToTorch(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kI64:
      return at::kLong;
    case DType::kI32:
      return at::kInt;
    case DType::kU8:
      return at::kByte;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    default:
      break;
  }
  C10_THROW_ERROR(
      TypeError, absl::StrCat("no tensors of dtype ", static_cast<int>(dtype)));
}

DType FromTorch(at::ScalarType type) {
  for (int value = 1; value < kDTypes; ++value) {
    const auto dtype = static_cast<DType>(value);
    if (ToTorch(dtype) == type) return dtype;
  }
  return DType::kUnspecified;
}

at::Tensor ToTorch(const Tensor& tensor) {
  return at::from_blob(
      tensor.data.get(), tensor.shape, [keep = tensor.data](void*) {},
      at::TensorOptions().dtype(ToTorch(tensor.dtype)));
}

Tensor FromTorch(const at::Tensor& tensor) {
  const DType dtype = FromTorch(tensor.scalar_type());
  PACELINE_CHECK(tensor.is_contiguous() && dtype != DType::kUnspecified,
                 absl::StrCat("dtype=", c10::toString(tensor.scalar_type())));
  const auto keep = std::make_shared<at::Tensor>(tensor);
  return {dtype,
          tensor.sizes().vec(),
          {keep, static_cast<uint8_t*>(tensor.data_ptr())}};
}

}  // namespace paceline
