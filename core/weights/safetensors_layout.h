// Where every tensor of a model lies in its safetensors file.  Pure: the same
// model gives the same bytes, so that weights can be compared by hash.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"
#include "core/model/description.h"

namespace paceline {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct TensorPlace {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t offset = 0;  // bytes from the beginning of the file
  int64_t bytes = 0;
};

struct SafetensorsLayout {
  std::string header;  // the file's first bytes: length (8, LE), JSON, padding
  std::vector<TensorPlace> tensors;  // in the order of the file
  int64_t file_bytes = 0;
  std::string content = "weights";  // or "predictions": what a file is called
};

// Lays `tensors` out one after the other in the order given (offset and bytes
// are filled in); metadata goes under "__metadata__".  The header is padded
// with spaces so that data starts at a multiple of 8.
//
// Errors: InvalidArgument  a name twice, or a size that overflows.
absl::StatusOr<SafetensorsLayout> LayOut(
    std::vector<TensorPlace> tensors,
    const std::map<std::string, std::string>& metadata);

// A file begins with its header's length, little-endian.
inline constexpr int64_t kLengthBytes = 8;
// Metadata of a pruned model's file: a list of numbers, model.sizes.
inline constexpr char kSizesKey[] = "model.sizes";

// {"format": "pt", "model": name}, what the weights are made with, and
// kSizesKey where the model was pruned.
std::map<std::string, std::string> MetadataOf(const ModelDescription& model);

// All parameters and buffers of a model in layer order, with MetadataOf() it.
absl::StatusOr<SafetensorsLayout> LayOut(const ModelDescription& model);

}  // namespace paceline
