#include "worker/data/sample_set.h"

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
