// The folder of the coordinator's state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/os/files.h"

namespace paceline {

// SHA-256 of the whole file, lower hex.
absl::StatusOr<std::string> Sha256OfFile(int file, const std::string& path);

// The highest number that names a folder in `path`; 0: none.  The folder
// belongs to an earlier job, even one that the database does not know.
int64_t NewestJobFolder(const std::string& path);

// The folder that holds everything the coordinator keeps, and belongs to one
// process at a time.
//
//   <state>/lock            held while a coordinator runs
//   <state>/identity        a random number, drawn when the folder was made
//   <state>/coordinator.db  jobs, workers and records (SQLite)
//   <state>/jobs/<id>/      weights.safetensors or predictions.safetensors
//   <state>/checkpoints/    unless they are elsewhere: FileCheckpointStore
//
// Immutable.  This object owns the folder until its destruction or the
// process's end.
class StateDir {
 public:
  // Makes the folder if need be.
  // Errors: Unavailable  another coordinator runs on it; those of
  //         FileError()
  static absl::StatusOr<std::unique_ptr<StateDir>> Open(
      const std::string& path);
  ~StateDir();
  StateDir(const StateDir&) = delete;
  StateDir& operator=(const StateDir&) = delete;

  std::string database() const { return path_ + "/coordinator.db"; }
  std::string jobs() const { return path_ + "/jobs"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  const std::string& path() const { return path_; }
  const std::string& identity() const { return identity_; }

 private:
  StateDir(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;
  std::string identity_;
};

// The folder of checkpoints.  It belongs to one state (its file `identity`) and
// to one process at a time (its file `lock`).  Immutable.
class CheckpointDir {
 public:
  // Makes the folder if need be, or takes one that belongs to no state.
  //   adopt  takes the folder of another state, and keeps its contents
  // Errors: PermissionDenied    it belongs to another state: names both
  //         Unavailable         another coordinator runs on it; those of
  //         FileError()
  static absl::StatusOr<std::unique_ptr<CheckpointDir>> Open(
      const std::string& path, const StateDir& state, bool adopt);
  ~CheckpointDir();
  CheckpointDir(const CheckpointDir&) = delete;
  CheckpointDir& operator=(const CheckpointDir&) = delete;

 private:
  explicit CheckpointDir(int lock) : lock_(lock) {}

  const int lock_;
};

}  // namespace paceline
