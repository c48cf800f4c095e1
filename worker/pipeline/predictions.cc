#include "worker/pipeline/predictions.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/model/predictions.h"
#include "core/obs/log.h"

namespace paceline {

absl::Status Predictions::CheckRoom(int64_t sample_bytes) const {
  int64_t bytes = 0;
  const bool can_be_counted =
      !__builtin_mul_overflow(expected_, sample_bytes, &bytes);
  if (most_bytes_ <= 0 || (can_be_counted && bytes <= most_bytes_)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the predictions of ", expected_, " samples take ", sample_bytes,
      " bytes each, and this worker has ", most_bytes_,
      " bytes of memory, in which they stay to the end: lower infer.samples",
      keep_outputs_ ? ", or set infer.outputs: false" : ""));
}

void Predictions::WarnOfNoClass() const {
  if (without_class_ == 0) return;
  Log(LogLevel::kWarn,
      "predictions that are no class: NaN in the outputs, of a picture that "
      "cannot be read or of the model",
      {{"predictions", without_class_}, {"samples", samples_}});
}

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
  if (samples_ == 0) {
    // Classes have the labels' shape and dtype.
    const int64_t bytes =
        2 * labels.bytes() + (keep_outputs_ ? outputs.bytes() : 0);
    PACELINE_RETURN_IF_ERROR(CheckRoom(bytes / outputs.shape.front()));
  }
  sample_ = sample;
  samples_ += outputs.shape.front();
  const auto width = static_cast<int64_t>(outputs.shape.back());
  Tensor classes = Tensor::Allocate(DType::kI64, labels.shape);
  const absl::Span<int64_t> highest = classes.As<int64_t>();
  const absl::Span<const float> values = outputs.As<float>();
  for (size_t row = 0; row < highest.size(); ++row) {
    const auto begin = values.begin() + static_cast<int64_t>(row) * width;
    const bool is_known = std::none_of(
        begin, begin + width, [](float value) { return std::isnan(value); });
    highest[row] =
        is_known ? std::max_element(begin, begin + width) - begin : kNoClass;
    without_class_ += is_known ? 0 : 1;
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
