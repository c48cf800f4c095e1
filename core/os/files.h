// The operating system's calls for files, with Status; limits which of them a
// job may name.
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
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace paceline {

// errno in words: a full disk is ResourceExhausted, a missing file NotFound,
// a forbidden one PermissionDenied, anything else Internal.  `doing` is as in
// "cannot <doing> <path>: <reason>".
absl::Status FileError(absl::string_view doing, const std::string& path,
                       int error);

// All of `data` at `offset`.
absl::Status WriteAt(int file, const std::string& path, int64_t offset,
                     absl::string_view data);

// At most `limit` bytes from `offset` on; less only at the end of the file.
absl::StatusOr<std::string> ReadAt(int file, const std::string& path,
                                   int64_t offset, int64_t limit);

absl::Status SyncFile(int file, const std::string& path);

// Makes renames and new names in `folder` durable.
absl::Status SyncFolder(const std::string& folder);

// With its parents; only its owner may enter what is new.
absl::Status MakeFolders(const std::string& folder);

// $HOME, else what the system's list of users says; empty: the user has none.
std::string HomeFolder();
// The folder of what programs of this user keep: $XDG_STATE_HOME/paceline or
// ~/.local/state/paceline.  Empty: the user has no home.
std::string UserStateFolder();

// Whether nobody but this user and root can change what is in the folder or put
// another one in its place.
// Errors: PermissionDenied  somebody can; says who, and what to do
//         and those of FileError()
absl::Status CheckOwnFolder(const std::string& folder);

// Makes a file beside `path`, under a name that no file has: PATH.part, else
// PATH.part-PID-N.  The name of a long path is cut.
//   made  the new file's path
// Returns its descriptor for writing, or -1 and errno.
int MakeFileBeside(const std::string& path, int mode, std::string& made);

// Writes `text` beside `path` and gives it its name: no reader ever sees half,
// not after a power cut either.  mode: who may read it.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view text, int mode = 0644);

// All of a file of at most `limit` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit);

// --- which files of this machine a job may name and so have read ---
//
// Its data, weights and scripts.

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
