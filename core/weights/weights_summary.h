// A summary of a weights file without the values: what a reader found out and
// a person may want to know.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/weights/safetensors_layout.h"

namespace paceline {

struct WeightsSummary {
  std::vector<TensorPlace> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  int64_t file_bytes = 0;
  std::string sha256;  // of the whole file, lower hex
};

}  // namespace paceline
