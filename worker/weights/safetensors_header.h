// The JSON header of a safetensors file, read event by event: nothing is built
// that the format does not know, so that a hostile header costs no memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/model/safetensors_layout.h"

namespace paceline {

struct SafetensorsHeader {
  // Sorted by offset, which here counts from where the data begins.
  std::vector<TensorPlace> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses `json` and checks that its tensors fill data_bytes exactly.
//
// Errors: InvalidArgument  see ReadSafetensors; names the tensor.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

}  // namespace paceline
