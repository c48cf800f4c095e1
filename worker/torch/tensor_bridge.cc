#include "worker/torch/tensor_bridge.h"

#include <algorithm>
#include <memory>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/data/data_sets.h"

namespace paceline {

at::ScalarType ToTorch(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kI64:
      return at::kLong;
    case DType::kI32:
      return at::kInt;
    case DType::kU8:
      return at::kByte;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    default:
      break;
  }
  C10_THROW_ERROR(
      TypeError, absl::StrCat("no tensors of dtype ", static_cast<int>(dtype)));
}

DType FromTorch(at::ScalarType type) {
  for (int value = 1; value < kDTypes; ++value) {
    const auto dtype = static_cast<DType>(value);
    if (ToTorch(dtype) == type) return dtype;
  }
  return DType::kUnspecified;
}

at::Tensor ToTorch(const Tensor& tensor) {
  return at::from_blob(
      tensor.data.get(), tensor.shape, [keep = tensor.data](void*) {},
      at::TensorOptions().dtype(ToTorch(tensor.dtype)));
}

Tensor FromTorch(const at::Tensor& tensor) {
  const DType dtype = FromTorch(tensor.scalar_type());
  PACELINE_CHECK(tensor.is_contiguous() && dtype != DType::kUnspecified,
                 "dtype=", c10::toString(tensor.scalar_type()));
  const auto keep = std::make_shared<at::Tensor>(tensor);
  return {dtype,
          tensor.sizes().vec(),
          {keep, static_cast<uint8_t*>(tensor.data_ptr())}};
}

std::vector<at::Tensor> BesideOf(const TensorList& input) {
  std::vector<at::Tensor> beside;
  for (size_t i = 1; i + 1 < input.size(); ++i) {
    beside.push_back(ToTorch(input[i]));
  }
  return beside;
}

TensorList OutputOf(const at::Tensor& x, const std::vector<at::Tensor>& beside,
                    const Tensor& labels) {
  TensorList output = {FromTorch(x)};
  for (const at::Tensor& tensor : beside) output.push_back(FromTorch(tensor));
  output.push_back(labels);
  return output;
}

at::Tensor LossOf(const at::Tensor& logits, const Tensor& labels) {
  return at::cross_entropy_loss(logits.flatten(0, -2),
                                ToTorch(labels).flatten(), {},
                                at::Reduction::Sum, kNoLabel);
}

at::Tensor DistilledLossOf(const at::Tensor& loss, const at::Tensor& logits,
                           const at::Tensor& teacher, const Tensor& labels,
                           const DistillSpec& distill) {
  const double t = distill.temperature;
  const auto scores = [t](const at::Tensor& of) {
    return at::log_softmax(of.flatten(0, -2) / t, -1);
  };
  const at::Tensor distance =
      at::kl_div(scores(logits), scores(teacher), at::Reduction::None,
                 /*log_target=*/true)
          .sum(-1);
  const at::Tensor counted = ToTorch(labels).flatten() != kNoLabel;
  return (1 - distill.share) * loss +
         distill.share * t * t * (distance * counted).sum();
}

LossSums SumsOf(const at::Tensor& loss, const at::Tensor& logits,
                const Tensor& labels) {
  const int64_t classes = logits.size(-1);
  const float* row = logits.data_ptr<float>();
  LossSums sums;
  sums.loss = loss.item<float>();
  for (const int64_t label : labels.As<int64_t>()) {
    sums.correct += std::max_element(row, row + classes) - row == label;
    row += classes;
  }
  sums.samples = CountLabels(labels);
  return sums;
}

}  // namespace paceline
