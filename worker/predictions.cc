#include "worker/predictions.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/predictions.h"

namespace paceline {
namespace {

template <typename T>
NamedTensor Named(const char* name, DType dtype, Shape shape,
                  const std::vector<T>& values) {
  Tensor tensor = Tensor::Allocate(dtype, std::move(shape));
  if (!values.empty()) {
    std::memcpy(tensor.data.get(), values.data(), values.size() * sizeof(T));
  }
  return {name, std::move(tensor)};
}

}  // namespace

absl::Status Predictions::Add(const Tensor& outputs, const Tensor& labels) {
  const bool fits =
      outputs.dtype == DType::kF32 && labels.dtype == DType::kI64 &&
      outputs.shape.size() >= 2 && outputs.shape.back() > 0 &&
      Shape(outputs.shape.begin(), outputs.shape.end() - 1) == labels.shape;
  const Shape sample =
      fits ? Shape(outputs.shape.begin() + 1, outputs.shape.end()) : Shape();
  if (!fits || (samples_ > 0 && sample != sample_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "predictions of shape [", absl::StrJoin(outputs.shape, ", "),
        "] with labels [", absl::StrJoin(labels.shape, ", "), "]",
        samples_ > 0 ? absl::StrCat(" after samples of [",
                                    absl::StrJoin(sample_, ", "), "]")
                     : ""));
  }
  sample_ = sample;
  samples_ += outputs.shape.front();
  const absl::Span<const float> values = outputs.As<float>();
  const auto width = static_cast<size_t>(outputs.shape.back());
  for (size_t row = 0; row < values.size(); row += width) {
    const auto first = values.begin() + static_cast<ptrdiff_t>(row);
    classes_.push_back(
        std::max_element(first, first + static_cast<ptrdiff_t>(width)) - first);
  }
  const absl::Span<const int64_t> given = labels.As<int64_t>();
  labels_.insert(labels_.end(), given.begin(), given.end());
  if (keep_outputs_) {
    outputs_.insert(outputs_.end(), values.begin(), values.end());
  }
  return absl::OkStatus();
}

std::vector<NamedTensor> Predictions::Take() {
  Shape whole = {samples_};
  whole.insert(whole.end(), sample_.begin(), sample_.end());
  const Shape each(whole.begin(), whole.end() - (sample_.empty() ? 0 : 1));
  std::vector<NamedTensor> tensors;
  tensors.push_back(Named(kPredictedClasses, DType::kI64, each, classes_));
  tensors.push_back(Named(kPredictedLabels, DType::kI64, each, labels_));
  if (keep_outputs_) {
    tensors.push_back(
        Named(kPredictedOutputs, DType::kF32, std::move(whole), outputs_));
  }
  return tensors;
}

}  // namespace paceline
