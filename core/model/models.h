// One function a kind of model, one file each.  For catalog.cc alone;
// DescribeModel() has checked the input, the classes and the dropout.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/model/description.h"

namespace paceline {

// The largest width, hidden size or head count: two of them multiplied stay
// far below any overflow.
constexpr int64_t kLargestSize = 65536;

// Fully connected: flatten, then linear and relu for each of `hidden`, then
// the classes.  Any input.
absl::StatusOr<ModelDescription> DescribeMlp(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes);

// The convolutional network of the quickstart, after LeCun et al. 1998, for
// images [channels, height, width] of at least 4 x 4.
absl::StatusOr<ModelDescription> DescribeLenet(const ModelSpec& spec,
                                               const Shape& input,
                                               int32_t classes);

// A vision transformer (Dosovitskiy et al. 2021), pre-norm, with a class
// token, for images whose height and width `patch` divides.  vit_b_16 has the
// parameter names of torchvision, all others those of timm.
absl::StatusOr<ModelDescription> DescribeVit(const ModelSpec& spec,
                                             const Shape& input,
                                             int32_t classes);

}  // namespace paceline
