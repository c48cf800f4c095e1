#include "worker/parallel_memory.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/transfer/checksum.h"

namespace paceline {

std::vector<size_t> ParameterOffsets(const ModelDescription& model,
                                     const LayerRange& layers) {
  std::vector<size_t> offsets = {0};
  for (int i = layers.first; i < layers.last; ++i) {
    size_t elements = 0;
    for (const Parameter& parameter : model.layers[i].parameters) {
      if (parameter.trainable) elements += NumElements(parameter.shape);
    }
    offsets.push_back(offsets.back() + elements);
  }
  return offsets;
}

Tensor ViewOf(const Tensor& flat, size_t offset, const Shape& shape) {
  const size_t end = offset + NumElements(shape);
  PACELINE_CHECK(end <= static_cast<size_t>(NumElements(flat.shape)),
                 absl::StrCat("end=", end));
  // The view keeps the whole of it alive.
  return {DType::kF32, shape,
          std::shared_ptr<uint8_t>(flat.data,
                                   flat.data.get() + offset * sizeof(float))};
}

void ScatteredBytes::Add(const Tensor& tensor) {
  const auto bytes = static_cast<size_t>(tensor.bytes());
  pieces_.push_back({tensor.data.get(), bytes});
  size_ += bytes;
}

absl::Status ScatteredBytes::CheckSize(size_t bytes) const {
  if (bytes == size_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a copy of the state of ", bytes, " bytes, need ", size_,
                   ": it is of another model or optimizer"));
}

absl::Status ScatteredBytes::CopyTo(absl::Span<uint8_t> to) const {
  PACELINE_RETURN_IF_ERROR(CheckSize(to.size()));
  uint8_t* next = to.data();
  for (const absl::Span<uint8_t> piece : pieces_) {
    if (piece.empty()) continue;
    std::memcpy(next, piece.data(), piece.size());
    next += piece.size();
  }
  return absl::OkStatus();
}

absl::Status ScatteredBytes::CopyFrom(absl::Span<const uint8_t> from) const {
  PACELINE_RETURN_IF_ERROR(CheckSize(from.size()));
  const uint8_t* next = from.data();
  for (const absl::Span<uint8_t> piece : pieces_) {
    if (piece.empty()) continue;
    std::memcpy(piece.data(), next, piece.size());
    next += piece.size();
  }
  return absl::OkStatus();
}

uint64_t ScatteredBytes::Hash() const {
  Checksum checksum;
  for (const absl::Span<uint8_t> piece : pieces_) checksum.Update(piece);
  return checksum.Digest();
}

}  // namespace paceline
