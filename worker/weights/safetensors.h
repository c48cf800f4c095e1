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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/model/safetensors_layout.h"
#include "core/model/weights_summary.h"
#include "worker/stage_engine.h"

namespace paceline {

constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{16} << 20;

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Reads `path` whole, once.  Memory: the tensors, plus at most about 20 times
// the header while it is parsed.
//
// Errors (the message names the file and, where there is one, the tensor):
//   NotFound, PermissionDenied  as the system says
//   ResourceExhausted  larger than max_bytes
//   InvalidArgument    not safetensors, or lies: cut short, header over 16 MiB,
//                      not JSON or not of the shape above, a name twice, a
//                      dtype that we do not have, offsets out of range, that
//                      overlap or leave holes, or that differ from dtype x
//                      shape
absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path,
                                                int64_t max_bytes = int64_t{8}
                                                                    << 30);

// Sees what a file has and says by name what of it shall be read.
using ChooseTensors = std::function<absl::StatusOr<std::set<std::string>>(
    const std::vector<TensorPlace>& tensors)>;

// Reads only those tensors of `path` that `choose` asks for; names that the
// file does not have are passed over.
//
// Errors: as ReadSafetensors, but there is no max_bytes; what choose() says.
absl::StatusOr<SafetensorsFile> ReadSomeSafetensors(
    const std::string& path, const ChooseTensors& choose);

// What is in `path`, checked as above, and the hash of all its bytes.  Reads
// them once and keeps none but the header's: a file may be larger than memory.
//
// Errors: as ReadSafetensors, but there is no max_bytes.
absl::StatusOr<WeightsSummary> SummarizeSafetensors(const std::string& path);

// Writes all `tensors` in their order under `path`, by way of a temporary file
// beside it, fsync and rename: a reader sees the old file or the whole new one.
// The same arguments give the same bytes.
//
// Errors (what was at `path` stays as it was; nothing is left beside it):
//   InvalidArgument    a name twice
//   ResourceExhausted  the disk or the quota is full
//   NotFound, PermissionDenied, ...  as the system says
absl::Status WriteSafetensors(
    const std::string& path, absl::Span<const NamedTensor> tensors,
    const std::map<std::string, std::string>& metadata);

}  // namespace paceline
