// Limits which files of this machine a job may name and so have read: its data,
// weights and scripts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paceline {

struct ReadAccess {
  // Everything below these folders may be read.  Absolute paths; links in them
  // are followed at each use, since a disk may be mounted later.
  std::vector<std::string> folders = {};
  // Hidden files, and files in hidden folders, may be read too; their names
  // begin with a dot.
  bool hidden = false;
  // Files and folders that stay closed wherever they lie: the process's own
  // key, configuration and state.
  std::vector<std::string> never = {};
};

// Sets the limits of the functions below.  Call it once, before there are other
// threads; again only in tests.  Without limits, as in a process that never
// calls this, they open every file that its user may read.
void LimitReads(std::optional<ReadAccess> access);

enum class FileKind { kFile, kFolder, kEither };

// Opens `path` for reading; the descriptor is the caller's.  Judges the opened
// file: the kernel says where it lies, with all links followed, so that nobody
// can change a link between the judgement and the use.  Refuses pipes and
// devices before it opens them for reading, which might wait or start
// something.
//
// Errors (the message names the path):
//   NotFound, PermissionDenied  as the system says, about what may be read
//   PermissionDenied  it may not be read: says where files may lie; the same
//                     for a missing file, so that nobody can probe for files
//   InvalidArgument   not of this kind
absl::StatusOr<int> OpenToRead(const std::string& path, FileKind kind);

// Whether it can be opened.  Errors: those of OpenToRead()
absl::Status CheckReadable(const std::string& path);

struct FolderEntry {
  std::string name;
  // Links are followed; one to nowhere, a pipe or a device is neither.
  bool is_folder = false;
  bool is_file = false;
  size_t stamp = 0;   // of its size, its times and its place on the disk
  int64_t bytes = 0;  // of a file
};

// Lists a folder, in no order, without "." and ".."; at most `most` entries, no
// other is looked at.
// Errors: those of OpenToRead()
absl::StatusOr<std::vector<FolderEntry>> ListFolder(
    const std::string& path, size_t most = std::numeric_limits<size_t>::max());

// Returns a number that changes, within this process, when `path` leads
// elsewhere, comes, goes, may now be read, or has another size or time.  Of a
// folder the first 10,000 entries below it count as well.  Reads no content.
size_t StampOf(const std::string& path);

// A file whose bytes are read when and where they are needed.

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
