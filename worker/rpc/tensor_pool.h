// Memory of received tensors, used again: the frames of a run have few sizes,
// and fresh memory costs a page fault every 4 KiB.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/tensor.h"

namespace paceline {

// Thread-safe.  Tensors may outlive it.
class TensorPool {
 public:
  // Keeps at most so many bytes of dropped tensors.
  explicit TensorPool(int64_t kept_bytes);

  // As Tensor::Allocate.
  Tensor Allocate(DType dtype, Shape shape);

 private:
  class Store;

  // Shared with the tensors, which give their memory back to it.
  const std::shared_ptr<Store> store_;
};

}  // namespace paceline
