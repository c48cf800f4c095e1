// The IDX format of the MNIST files, plain or gzipped.
//
//   file   = 0x00 0x00 type rank size*rank value*
//   type   = 0x08                       ; unsigned byte, the only one read here
//   size   = 4 bytes, big endian
//   e.g. 00 00 08 03 0000ea60 0000001c 0000001c ...   60,000 images of 28x28
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"

namespace paceline {

struct IdxFile {
  std::string path;
  Shape shape;
  std::vector<uint8_t> values;  // row-major
};

// Refuses a file by its header: path and shape are known, values are not yet.
using IdxHeaderCheck = absl::FunctionRef<absl::Status(const IdxFile&)>;

// Reads `path` whole, once `check` has taken its header: a gzipped file may
// really contain a thousand times its own bytes.  Never holds more than about
// twice the bytes that the file really contains, whatever its header says.
//
// Errors (the message names the file):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument  not IDX, values that are no bytes, cut short, longer than
//                    its header says, or damaged gzip
//   those of `check`
absl::StatusOr<IdxFile> ReadIdx(const std::string& path, IdxHeaderCheck check);

}  // namespace paceline
