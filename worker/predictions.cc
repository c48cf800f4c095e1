#include "worker/predictions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/predictions.h"

namespace paceline {
absl::Status Predictions::Add(int64_t first, const Tensor& outputs,
                              const Tensor& labels) {
  const bool fits =
      outputs.dtype == DType::kF32 && labels.dtype == DType::kI64 &&
      outputs.shape.size() >= 2 && outputs.shape.back() > 0 &&
      outputs.shape.front() > 0 && first >= 0 &&
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
  const auto width = static_cast<int64_t>(outputs.shape.back());
  Tensor classes = Tensor::Allocate(DType::kI64, labels.shape);
  const absl::Span<int64_t> highest = classes.As<int64_t>();
  const absl::Span<const float> values = outputs.As<float>();
  for (size_t row = 0; row < highest.size(); ++row) {
    const auto begin = values.begin() + static_cast<int64_t>(row) * width;
    highest[row] = std::max_element(begin, begin + width) - begin;
  }
  const auto keep = [&](const char* name, const Tensor& tensor) {
    const int64_t sample_bytes = tensor.bytes() / tensor.shape.front();
    parts_.push_back({name, tensor, first * sample_bytes});
  };
  keep(kPredictedClasses, classes);
  keep(kPredictedLabels, labels);
  if (keep_outputs_) keep(kPredictedOutputs, outputs);
  return absl::OkStatus();
}

}  // namespace paceline
