#include "worker/pipeline/parallel_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

void ParallelEngine::MakeFlat(const EngineOptions& options) {
  offsets_ = ParameterOffsets(options.model, options.layers);
  flat_ =
      Tensor::Allocate(DType::kF32, {static_cast<int64_t>(offsets_.back())});
  const absl::Span<float> all = flat_.As<float>();
  std::fill(all.begin(), all.end(), 0.0f);
}

absl::StatusOr<absl::Span<float>> ParallelEngine::FlatGradient() {
  if (!is_parallel()) return StageEngine::FlatGradient();
  return flat_.As<float>();
}

size_t ParallelEngine::StateBytes() const {
  return is_parallel() ? State().size() : 0;
}

absl::Status ParallelEngine::CopyState(absl::Span<uint8_t> to) {
  if (!is_parallel()) return StageEngine::CopyState(to);
  return State().CopyTo(to);
}

absl::StatusOr<uint64_t> ParallelEngine::StateHash() {
  if (!is_parallel()) return StageEngine::StateHash();
  return State().Hash();
}

absl::Status ParallelEngine::RestoreState(absl::Span<const uint8_t> from) {
  if (!is_parallel()) return StageEngine::RestoreState(from);
  PACELINE_RETURN_IF_ERROR(State().CopyFrom(from));
  OnWeightsWritten();
  return AbandonStep();
}

absl::Status ParallelEngine::AbandonStep() {
  if (!is_parallel()) return StageEngine::AbandonStep();
  DropStep();
  return absl::OkStatus();
}

absl::Status ParallelEngine::ReadSumFrom(
    std::vector<absl::Span<const float>> pieces) {
  if (!is_parallel()) return StageEngine::ReadSumFrom(std::move(pieces));
  size_t values = 0;
  for (const absl::Span<const float> piece : pieces) values += piece.size();
  if (values != offsets_.back()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sum of ", values, " values for the ", offsets_.back(),
                     " of the trainable parameters"));
  }
  pieces_ = std::move(pieces);
  return absl::OkStatus();
}

absl::Span<const float> ParallelEngine::SumOf(Tensor gradient) const {
  const absl::Span<float> own = gradient.As<float>();
  if (pieces_.empty()) return own;
  size_t skip =
      static_cast<const float*>(own.data()) - flat_.As<float>().data();
  size_t done = 0;
  for (const absl::Span<const float> piece : pieces_) {
    if (skip >= piece.size()) {
      skip -= piece.size();
      continue;
    }
    const absl::Span<const float> part = piece.subspan(skip, own.size() - done);
    if (part.size() == own.size()) return part;
    std::copy(part.begin(), part.end(), own.begin() + done);
    done += part.size();
    skip = 0;
    if (done == own.size()) break;
  }
  return own;
}

}  // namespace paceline
