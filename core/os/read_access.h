// Which files of this machine may be read because somebody else has named them:
// a job's data, weights and scripts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace paceline {

struct ReadAccess {
  // All that lies below them may be read.  Absolute paths; links in them are
  // followed at each use, since a disk may be mounted later.
  std::vector<std::string> folders = {};
  // Below them also what is hidden, or lies in a hidden folder: its name begins
  // with a dot.
  bool hidden = false;
  // Files and folders that stay closed wherever they lie: the process's own
  // key, configuration and state.
  std::vector<std::string> never = {};
};

// The functions below judge by `access` from now on.  Once, before there are
// other threads; again only in tests.  Nothing, as in a process that never
// calls this: they open all that its user may.
void LimitReads(std::optional<ReadAccess> access);

enum class FileKind { kFile, kFolder, kEither };

// Opens `path` for reading; the descriptor is the caller's.  Judges what was
// opened: the kernel says where it lies, with all links followed, so that no
// link can be changed between the judgement and the use.  Pipes and devices are
// turned away before they are opened for reading, which might wait or set
// something off.
//
// Errors (the message names the path):
//   NotFound, PermissionDenied  as the system says, about what may be read
//   PermissionDenied  it may not be read: says where files may lie; the same
//                     for what is not there, so that nobody finds out by asking
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

// Another number, in this process, when `path` leads elsewhere, comes, goes,
// may now be read, or has another size or time; the same for what lies below
// it, of which the first 10,000 entries count and are looked at.  Reads no
// content.
size_t StampOf(const std::string& path);

}  // namespace paceline
