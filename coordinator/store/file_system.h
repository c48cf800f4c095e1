// The calls of the operating system that the store needs, with Status.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

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

// Writes `text` beside `path` and gives it its name: no reader ever sees half.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view text);

// SHA-256 of the whole file, lower hex.
absl::StatusOr<std::string> Sha256OfFile(int file, const std::string& path);

// The folder that holds everything the coordinator keeps, and belongs to one
// process at a time.
//
//   <state>/lock            held while a coordinator runs
//   <state>/coordinator.db  jobs, workers and records (SQLite)
//   <state>/jobs/<id>/      weights.safetensors or predictions.safetensors
//   <state>/checkpoints/    unless they are elsewhere: FileCheckpointStore
//
// Immutable.  The folder is ours until destruction, or the process's end.
class StateDir {
 public:
  // Makes the folder if need be.
  // Errors: FailedPrecondition  another coordinator runs on it; those of
  //         FileError()
  static absl::StatusOr<std::unique_ptr<StateDir>> Open(
      const std::string& path);
  ~StateDir();
  StateDir(const StateDir&) = delete;
  StateDir& operator=(const StateDir&) = delete;

  std::string database() const { return path_ + "/coordinator.db"; }
  std::string jobs() const { return path_ + "/jobs"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  // The highest number that a folder of jobs() has; 0: there is none.
  // Whatever the database knows, what is in them is of jobs that were.
  int64_t NewestJobFolder() const;

 private:
  StateDir(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;
};

}  // namespace paceline
