#include "worker/torch/micro_batch.h"

#include <algorithm>

#include "core/model/data_sets.h"
#include "torch/torch.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {

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
