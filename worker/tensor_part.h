// A tensor, or some of its rows, on the way to the coordinator.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/tensor.h"

namespace paceline {

struct TensorPart {
  std::string name;  // of the whole
  Tensor tensor;
  int64_t offset_bytes = 0;  // where in the whole it begins
};

}  // namespace paceline
