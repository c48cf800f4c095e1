#include "core/base/tensor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/tensor_memory.h"

namespace paceline {

int64_t NumElements(absl::Span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return -1;
  }
  return count;
}

int64_t TensorBytes(DType dtype, absl::Span<const int64_t> shape) {
  const int64_t count = NumElements(shape);
  int64_t bytes = 0;
  if (count < 0 || __builtin_mul_overflow(count, ElementBytes(dtype), &bytes)) {
    return -1;
  }
  return bytes;
}

Shape Batched(int64_t samples, absl::Span<const int64_t> sample) {
  Shape shape = {samples};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

Tensor Tensor::Zeros(DType dtype, Shape shape) {
  Tensor tensor = Allocate(dtype, std::move(shape));
  std::memset(tensor.data.get(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::Allocate(DType dtype, Shape shape) {
  constexpr std::align_val_t kAlignment{64};
  Tensor tensor{dtype, std::move(shape), nullptr};
  PACELINE_CHECK(tensor.bytes() >= 0, absl::StrCat("bytes=", tensor.bytes()));
  const size_t bytes = std::max<int64_t>(tensor.bytes(), 1);
  tensor.data = std::shared_ptr<uint8_t>(
      static_cast<uint8_t*>(::operator new(bytes, kAlignment)),
      [bytes](uint8_t* memory) {
        ::operator delete(memory, kAlignment);
        CountTensorBytes(-static_cast<int64_t>(bytes));
      });
  CountTensorBytes(static_cast<int64_t>(bytes));
  return tensor;
}

}  // namespace paceline
