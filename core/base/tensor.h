// A dense tensor in host memory, without LibTorch.  Links, data sources and
// weights files pass such tensors to one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace paceline {

// Element types of tensors that cross the wire or lie in a weights file.
// Values are those of paceline.v1.DType.
enum class DType : uint8_t {
  kUnspecified = 0,
  kF32 = 1,
  kBF16 = 2,
  kF16 = 3,
  kI64 = 4,
  kI32 = 5,
  kU8 = 6,
};

constexpr int kDTypes = 7;  // a wire value is valid in [1, kDTypes)

// Bytes of one element; 0 for kUnspecified.
int64_t ElementBytes(DType dtype);
// "F32": the name safetensors uses.
absl::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);

using Shape = std::vector<int64_t>;

// Product of the dimensions; 1 for a scalar, -1 when it overflows int64 or a
// dimension is negative.
int64_t NumElements(absl::Span<const int64_t> shape);

// Bytes of a tensor; -1 when they overflow int64 or a dimension is negative.
int64_t TensorBytes(DType dtype, absl::Span<const int64_t> shape);

// "[3, 32, 32]"
std::string ShapeText(absl::Span<const int64_t> shape);

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

// --- memory of tensors ---

// Counts our tensors (Tensor::Allocate) and those of LibTorch
// (worker/torch/allocation_meter.h).  There is one count for the process, since
// one library may free what another has allocated; a worker has one run at a
// time.  Scratch memory that the libraries get elsewhere is not counted.
// Thread-safe; takes a few nanoseconds.

// bytes: negative when memory is freed.
void CountTensorBytes(int64_t bytes);

int64_t TensorBytesNow();

// The peak since the process began, or since the last BeginTensorPeak().
int64_t TensorBytesPeak();
// Begins a new peak at the present number of bytes.
void BeginTensorPeak();

// Gives memory again that nobody uses any more: fresh pages cost a fault every
// 4 KiB.  Thread-safe.  Its blocks may outlive it.
class MemoryPool {
 public:
  using Block = std::shared_ptr<uint8_t>;

  // kept_bytes: the most bytes of unused blocks; memory beyond them is freed.
  // allocate: makes a block of that many bytes.
  MemoryPool(size_t kept_bytes, std::function<Block(size_t bytes)> allocate);

  // Returns an unused block of this size, or makes one.  The block comes back
  // when its last owner drops it, on any thread.
  Block Take(size_t bytes);

  size_t kept_bytes() const;  // of unused blocks

 private:
  struct Shelf;

  // Shared with every block in use.
  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace paceline
