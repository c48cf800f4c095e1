// What engines do alike as members of a round group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/model/description.h"
#include "core/plan/plan.h"
#include "worker/pipeline/stage_engine.h"

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

// Lives on the compute thread.
class ParallelEngine : public StageEngine {
 public:
  absl::StatusOr<absl::Span<float>> FlatGradient() final;
  std::vector<size_t> GradientOffsets() const final { return offsets_; }
  size_t StateBytes() const final;
  absl::Status CopyState(absl::Span<uint8_t> to) final;
  absl::StatusOr<uint64_t> StateHash() final;
  absl::Status RestoreState(absl::Span<const uint8_t> from) final;
  absl::Status AbandonStep() final;
  absl::Status ReadSumFrom(std::vector<absl::Span<const float>> pieces) final;

 protected:
  // From now on it is for data parallelism: there is memory for the gradients
  // of all trainable parameters, zeros, in which each is to have its
  // FlatView(), in the order of the layers.
  void MakeFlat(const EngineOptions& options);
  Tensor FlatView(size_t offset, const Shape& shape) const {
    return ViewOf(flat_, offset, shape);
  }
  bool is_parallel() const { return !offsets_.empty(); }

  // What Report() and Apply() read of a parameter whose own sum is `gradient`:
  // that, or the group's (ReadSumFrom).  A parameter that lies across pieces is
  // put together in its own memory.
  absl::Span<const float> SumOf(Tensor gradient) const;
  void ReadOwnSum() { pieces_.clear(); }

 private:
  // Parameters, buffers and what the optimizer remembers.
  virtual ScatteredBytes State() const = 0;
  // Drops forwards that were kept, and the sum: ReadOwnSum() too.
  virtual void DropStep() = 0;

  std::vector<size_t> offsets_;  // as GradientOffsets()
  Tensor flat_;
  std::vector<absl::Span<const float>> pieces_;  // empty: the sum is in flat_
};

}  // namespace paceline
