// A file that appears whole or not at all.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

// Writes to a temporary file beside `path`; Commit() puts it there.  Dropped
// without Commit(), it leaves nothing behind.  Thread-compatible.
//
// Errors of all methods name the path: ResourceExhausted when the disk or the
// quota is full or a size limit is met, else as absl::ErrnoToStatus.
class AtomicFile {
 public:
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(
      const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Append(absl::string_view bytes);

  // Flushes to disk and renames over `path`.  Once.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor);
  absl::Status Flush();

  const std::string path_;
  const std::string temporary_;
  int descriptor_;  // -1: closed
  bool committed_ = false;
};

}  // namespace paceline
