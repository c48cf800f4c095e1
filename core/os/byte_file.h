// A file whose bytes are read when and where they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paceline {

// Immutable; several threads may read at the same time.  The file is not mapped
// into memory: if a person shortens it while a job runs, the job must end with
// an error, and the worker must not end by a signal.
class ByteFile {
 public:
  // Errors: those of OpenToRead()
  static absl::StatusOr<std::unique_ptr<ByteFile>> Open(
      const std::string& path);
  ~ByteFile();
  ByteFile(const ByteFile&) = delete;
  ByteFile& operator=(const ByteFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened

  // Fills `target` with the bytes from `offset` on.
  // Errors: DataLoss  the file ends before; else as the system says
  absl::Status ReadAt(int64_t offset, absl::Span<uint8_t> target) const;

  // Calls `take(offset, bytes)` with the whole file, a piece of a mebibyte
  // after the other, until an error; each piece begins at a multiple of `unit`
  // bytes.
  absl::Status Scan(
      int64_t unit,
      absl::FunctionRef<absl::Status(int64_t, absl::Span<const uint8_t>)> take)
      const;

 private:
  ByteFile(std::string path, int descriptor, int64_t size);

  const std::string path_;
  const int descriptor_;
  const int64_t size_;
};

}  // namespace paceline
