#include "core/transfer/frame_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace paceline {
namespace {

std::string ToText(const std::vector<TensorMeta>& tensors) {
  return absl::StrJoin(tensors, " + ",
                       [](std::string* out, const TensorMeta& tensor) {
                         absl::StrAppend(out, paceline::ToText(tensor));
                       });
}

absl::Status Wrong(const FrameHeader& header, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(FrameKindName(header.kind), " frame at boundary ",
                   header.boundary, ", batch ", header.batch.ordinal,
                   ", micro-batch ", header.micro_batch, ": ", what));
}

absl::Status CheckBatch(const FrameHeader& header) {
  const BatchInfo& batch = header.batch;
  if (batch.ordinal < 0 || batch.step < 0) {
    return Wrong(header, "batch and step must not be negative");
  }
  if (batch.samples < 1) {
    return Wrong(header, absl::StrCat("the batch has ", batch.samples,
                                      " samples, need at least 1"));
  }
  if (header.micro_batch < 0 || header.micro_batch >= batch.micro_batches) {
    return Wrong(header, absl::StrCat("the batch has ", batch.micro_batches,
                                      " micro-batches"));
  }
  if (header.kind == FrameKind::kGradient &&
      batch.phase != BatchPhase::kTrain) {
    return Wrong(header, "evaluation has no gradients");
  }
  return absl::OkStatus();
}

std::vector<TensorMeta> Expected(const FrameHeader& header, int64_t samples,
                                 const Shape& sample_shape) {
  TensorMeta first{DType::kF32, {samples}};
  first.shape.insert(first.shape.end(), sample_shape.begin(),
                     sample_shape.end());
  std::vector<TensorMeta> expected = {std::move(first)};
  if (header.kind == FrameKind::kActivation) {
    expected.push_back({DType::kI64, {samples}});
  }
  return expected;
}

// Equal to Expected(), which every frame would allocate.
bool IsAsExpected(const FrameHeader& header, int64_t samples,
                  const Shape& sample_shape) {
  const bool labels = header.kind == FrameKind::kActivation;
  if (header.tensors.size() != (labels ? 2 : 1)) return false;
  const TensorMeta& first = header.tensors[0];
  if (first.dtype != DType::kF32 || first.shape.empty() ||
      !std::equal(first.shape.begin() + 1, first.shape.end(),
                  sample_shape.begin(), sample_shape.end())) {
    return false;
  }
  if (!labels) return true;
  const TensorMeta& second = header.tensors[1];
  return second.dtype == DType::kI64 && second.shape.size() == 1 &&
         second.shape[0] == samples;
}

}  // namespace

absl::Status CheckFrame(const FrameHeader& header,
                        const BoundaryExpectation& expected) {
  if (absl::Status batch = CheckBatch(header); !batch.ok()) return batch;

  const int64_t samples =
      header.tensors.empty() || header.tensors[0].shape.empty()
          ? 0
          : header.tensors[0].shape[0];
  if (!IsAsExpected(header, samples, expected.sample_shape)) {
    return Wrong(
        header,
        absl::StrCat("got ", ToText(header.tensors), ", expected ",
                     ToText(Expected(header, samples, expected.sample_shape))));
  }
  if (samples < 1 || samples > expected.micro_batch) {
    return Wrong(header,
                 absl::StrCat("got ", samples, " samples, expected 1 to ",
                              expected.micro_batch));
  }
  return absl::OkStatus();
}

absl::string_view FrameKindName(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHello:
      return "hello";
    case FrameKind::kActivation:
      return "activation";
    case FrameKind::kGradient:
      return "gradient";
  }
  return "unknown";
}

std::string ToText(const TensorMeta& tensor) {
  const absl::string_view name = DTypeName(tensor.dtype);
  return absl::StrCat(name, "[", absl::StrJoin(tensor.shape, ", "), "]",
                      tensor.codec == Codec::kRaw ? "" : " as ",
                      tensor.codec == Codec::kRaw ? absl::string_view()
                                                  : CodecName(tensor.codec));
}

}  // namespace paceline
