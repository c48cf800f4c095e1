#include "worker/data/sample_set.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"

namespace paceline {
namespace {

Shape Many(int64_t count, const Shape& one) {
  Shape shape = {count};
  shape.insert(shape.end(), one.begin(), one.end());
  return shape;
}

}  // namespace

int64_t MicroBatchesAhead(const SampleFormat& format, int64_t micro_batch,
                          int threads) {
  const int64_t inputs =
      TensorBytes(format.dtype, Many(micro_batch, format.shape));
  const int64_t labels =
      TensorBytes(DType::kI64, Many(micro_batch, format.label_shape));
  // Below 0: more than can be counted.
  const int64_t room =
      inputs < 0 || labels < 0
          ? 0
          : kMostBytesAhead / std::max<int64_t>(inputs + labels, 1);
  return std::clamp<int64_t>(room, threads, int64_t{kAheadPerThread} * threads);
}

absl::StatusOr<TensorList> LoadMicroBatch(const SampleSet& samples,
                                          const MicroBatchPlace& place) {
  const auto count = static_cast<int64_t>(place.indices.size());
  const SampleFormat& format = samples.format();
  Tensor inputs = Tensor::Allocate(format.dtype, Many(count, format.shape));
  Tensor labels =
      Tensor::Allocate(DType::kI64, Many(count, format.label_shape));
  PACELINE_RETURN_IF_ERROR(samples.Load(place, inputs, labels));
  return TensorList{std::move(inputs), std::move(labels)};
}

}  // namespace paceline
