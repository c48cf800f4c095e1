// The operating system's calls for files, with Status.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

}  // namespace paceline
