// Weights in files.  The format is safetensors:
//
//   file    = length header data
//   length  = 8 bytes, little endian: bytes of header
//   header  = JSON {"name": {"dtype": "F32", "shape": [2, 3],
//             "data_offsets": [begin, end]}, ..., "__metadata__": {"k": "v"}}
//   data    = the tensors, row-major, little endian, without holes; offsets
//             count from where it begins
//
// A file is hostile until proven otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// A summary of a weights file for people, without the values.
struct WeightsSummary {
  std::vector<TensorPlace> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  int64_t file_bytes = 0;
  std::string sha256;  // of the whole file, lower hex
};

// Sees the tensors of a file and returns the names of those to read.
using ChooseTensors = std::function<absl::StatusOr<std::set<std::string>>(
    const std::vector<TensorPlace>& tensors)>;

// Reads those tensors of `path` that `choose` asks for, in the order of their
// data; names that the file does not have are passed over.  Memory: these
// tensors, plus at most about 20 times the header while it is parsed.
//   metadata  where not null: filled in before choose() is called
//
// Errors (the message names the file and, where there is one, the tensor):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument    not safetensors (says what it is instead, where its
//                      first bytes tell), or lies: cut short, header over 16
//                      MiB, not JSON or not of the shape above, a name twice, a
//                      dtype that we do not have, offsets out of range, that
//                      overlap or leave holes, or that differ from dtype x
//                      shape
//   any                what choose() says
absl::StatusOr<std::vector<NamedTensor>> ReadSafetensors(
    const std::string& path, const ChooseTensors& choose,
    std::map<std::string, std::string>* metadata = nullptr);

// Reads the text that the metadata of `path` has for `key` out of its header;
// empty: none.
//
// Errors: as ReadSafetensors.
absl::StatusOr<std::string> ReadSafetensorsMetadata(const std::string& path,
                                                    const std::string& key);

// Describes the content of `path`, checked as above, with the hash of all its
// bytes.  The function reads the file once and keeps only its header: a file
// may be larger than memory.
//
// Errors: as ReadSafetensors.
absl::StatusOr<WeightsSummary> SummarizeSafetensors(const std::string& path);

}  // namespace paceline
