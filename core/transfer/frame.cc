#include "core/transfer/frame.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/text.h"

namespace paceline {
namespace {

std::string ToText(const std::vector<TensorMeta>& tensors) {
  return Joined(tensors, " + ", [](const TensorMeta& tensor) {
    return paceline::ToText(tensor);
  });
}

template <typename... Parts>
absl::Status Wrong(const FrameHeader& header, const Parts&... what) {
  return InvalidArgument(FrameKindName(header.kind), " frame at boundary ",
                         header.boundary, ", batch ", header.batch.ordinal,
                         ", micro-batch ", header.micro_batch, ": ", what...);
}

// A worker adds to the numbers of batches, steps and updates.
constexpr int64_t kMostCounted = std::numeric_limits<int64_t>::max() / 2;

absl::Status CheckBatch(const FrameHeader& header) {
  const BatchInfo& batch = header.batch;
  const auto countable = [](int64_t number) {
    return number >= 0 && number <= kMostCounted;
  };
  if (!countable(batch.ordinal) || !countable(batch.step) ||
      !countable(batch.first_update)) {
    return Wrong(header, "batch, step and update must be from 0 to 2^62");
  }
  if (batch.samples < 1) {
    return Wrong(header, "the batch has ", batch.samples,
                 " samples, need at least 1");
  }
  if (header.kind == FrameKind::kReplica) return absl::OkStatus();
  if (header.micro_batch < 0 || header.micro_batch >= batch.micro_batches) {
    return Wrong(header, "the batch has ", batch.micro_batches,
                 " micro-batches");
  }
  if (header.kind != FrameKind::kActivation &&
      batch.phase != BatchPhase::kTrain) {
    return Wrong(header, "evaluation has no gradients");
  }
  return absl::OkStatus();
}

// Calls `use` with each tensor that the boundary expects, until it returns
// false.  batched: the samples are the first dimension.
bool ForEachExpected(
    const FrameHeader& header, const BoundaryExpectation& boundary,
    absl::FunctionRef<bool(DType, const Shape&, bool batched)> use) {
  const bool activation = header.kind == FrameKind::kActivation;
  for (const SampleTensor& tensor : boundary.tensors) {
    if (!activation && tensor.dtype != DType::kF32) continue;
    if (!use(tensor.dtype, tensor.shape, !header.is_tied())) return false;
  }
  return !activation || use(DType::kI64, boundary.label_shape, true);
}

// Without a copy of the expected shapes, which every frame would allocate.
bool IsAsExpected(const FrameHeader& header, int64_t samples,
                  const BoundaryExpectation& boundary) {
  auto next = header.tensors.begin();
  const auto same = [&](DType dtype, const Shape& shape, bool batched) {
    if (next == header.tensors.end()) return false;
    const TensorMeta& got = *next++;
    if (got.dtype != dtype) return false;
    if (!batched) return got.shape == shape;
    return !got.shape.empty() && got.shape[0] == samples &&
           std::equal(got.shape.begin() + 1, got.shape.end(), shape.begin(),
                      shape.end());
  };
  return ForEachExpected(header, boundary, same) &&
         next == header.tensors.end();
}

std::string ExpectedText(const FrameHeader& header, int64_t samples,
                         const BoundaryExpectation& boundary) {
  std::vector<TensorMeta> expected;
  ForEachExpected(
      header, boundary, [&](DType dtype, const Shape& shape, bool batched) {
        expected.push_back({dtype, batched ? Batched(samples, shape) : shape});
        return true;
      });
  return ToText(expected);
}

}  // namespace

absl::Status CheckFrame(const FrameHeader& header,
                        const BoundaryExpectation& expected) {
  PACELINE_RETURN_IF_ERROR(CheckBatch(header));
  if (header.kind == FrameKind::kReplica) {
    const int64_t most = expected.tensors[0].shape[0];
    if (header.tensors.size() == 1 && header.tensors[0].dtype == DType::kU8 &&
        header.tensors[0].shape.size() == 1 &&
        header.tensors[0].shape[0] <= most) {
      return absl::OkStatus();
    }
    return Wrong(header, "got ", ToText(header.tensors), ", expected at most ",
                 most, " bytes");
  }
  const int64_t samples =
      header.tensors.empty() || header.tensors[0].shape.empty()
          ? 0
          : header.tensors[0].shape[0];
  if (!IsAsExpected(header, samples, expected)) {
    return Wrong(header, "got ", ToText(header.tensors), ", expected ",
                 ExpectedText(header, samples, expected));
  }
  if (header.is_tied()) return absl::OkStatus();
  const BatchInfo& batch = header.batch;
  // The number of micro-batches divides losses and gradients.  Without a
  // product, which could be too large.
  if (expected.micro_batch > 0 &&
      (batch.samples - 1) / expected.micro_batch >= batch.micro_batches) {
    return Wrong(header, "the batch has ", batch.samples, " samples in ",
                 batch.micro_batches, " micro-batches of at most ",
                 expected.micro_batch);
  }
  if (samples < 1 || samples > expected.micro_batch) {
    return Wrong(header, "got ", samples, " samples, expected 1 to ",
                 expected.micro_batch);
  }
  return absl::OkStatus();
}

absl::string_view FrameKindName(FrameKind kind) {
  constexpr absl::string_view kNames[] = {
      "unknown",       "hello",      "activation", "gradient",
      "tied gradient", "tied value", "replica"};
  const auto index = static_cast<size_t>(kind);
  return kNames[index < std::size(kNames) ? index : 0];
}

std::string ToText(const TensorMeta& tensor) {
  const absl::string_view name = DTypeName(tensor.dtype);
  return absl::StrCat(name, ShapeText(tensor.shape),
                      tensor.codec == Codec::kRaw ? "" : " as ",
                      tensor.codec == Codec::kRaw ? absl::string_view()
                                                  : CodecName(tensor.codec));
}

bool LeftFences::Has(const Fence& fence) const {
  const auto found = fences_.find(fence.job);
  return found != fences_.end() && fence <= found->second;
}

void LeftFences::Add(const Fence& fence) {
  constexpr size_t kMostJobs = 1000;
  Fence& highest = fences_[fence.job];
  highest = std::max(highest, fence);
  if (fences_.size() > kMostJobs) fences_.erase(fences_.begin());
}

FenceVerdict DecideFence(const FenceState& mine, const Fence& theirs) {
  if (mine.open == theirs) return FenceVerdict::kAccept;
  const bool below_open =
      mine.open && mine.open->job == theirs.job && theirs < *mine.open;
  return below_open || mine.left.Has(theirs) ? FenceVerdict::kDropOlder
                                             : FenceVerdict::kHoldNewer;
}

std::string ToText(const Fence& fence) {
  return absl::StrCat("job=", fence.job.value, " attempt=", fence.attempt,
                      " plan=", fence.plan_version);
}

}  // namespace paceline
