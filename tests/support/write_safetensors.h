// Files of weights for tests.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/weights/safetensors_layout.h"
#include "gtest/gtest.h"

namespace paceline {

// All `tensors` in their order.
inline void WriteSafetensors(
    const std::string& path, const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata = {}) {
  std::vector<TensorPlace> places;
  for (const NamedTensor& named : tensors) {
    places.push_back({named.name, named.tensor.dtype, named.tensor.shape});
  }
  const auto layout = LayOut(std::move(places), metadata).value();
  std::ofstream file(path, std::ios::binary);
  file << layout.header;
  for (const auto& [name, tensor] : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.data.get()),
               tensor.bytes());
  }
}

}  // namespace paceline
