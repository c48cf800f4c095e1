// What an engine for data parallelism hands out as one: the gradients of its
// parameters side by side, and its state as a row of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/model/description.h"
#include "core/plan/plan.h"

namespace paceline {

// [layers + 1]: where the trainable parameters of each layer begin when those
// of all lie side by side, in layer order; the last entry is their number.
// Borrowed ones are their owner's.
std::vector<size_t> ParameterOffsets(const ModelDescription& model,
                                     const LayerRange& layers);

// float32 of `shape` from element `offset` of `flat` on, in its memory.
Tensor ViewOf(const Tensor& flat, size_t offset, const Shape& shape);

// Pieces of memory that count as one row of bytes.  Nothing is owned.
class ScatteredBytes {
 public:
  void Add(const Tensor& tensor);

  size_t size() const { return size_; }
  // Errors: InvalidArgument  `to` is not of size()
  absl::Status CopyTo(absl::Span<uint8_t> to) const;
  // Errors (nothing was written): InvalidArgument  `from` is not of size()
  absl::Status CopyFrom(absl::Span<const uint8_t> from) const;
  // XXH3-64, as of what CopyTo() gives.
  uint64_t Hash() const;

 private:
  absl::Status CheckSize(size_t bytes) const;

  std::vector<absl::Span<uint8_t>> pieces_;
  size_t size_ = 0;
};

}  // namespace paceline
