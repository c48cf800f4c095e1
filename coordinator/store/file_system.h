// The folder of the coordinator's state.
#pragma once

#include <unistd.h>

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

// A descriptor that is closed when this goes; negative: none.
class OpenFile {
 public:
  explicit OpenFile(int descriptor = -1) : descriptor_(descriptor) {}
  OpenFile(OpenFile&& other)
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFile& operator=(OpenFile&& other) {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OpenFile() {
    if (is_open()) close(descriptor_);
  }

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

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

  std::string database() const { return path_ + "/coordinator.db"; }
  std::string jobs() const { return path_ + "/jobs"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  const std::string& path() const { return path_; }
  const std::string& identity() const { return identity_; }

 private:
  StateDir(std::string path, OpenFile lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const OpenFile lock_;
  std::string identity_;
};

// Takes the folder of checkpoints for a state: makes it if need be.  It belongs
// to one state (its file `identity`) and to one process at a time (its file
// `lock`): as long as that has what this returns.
//   adopt  takes the folder of another state, and keeps its contents
// Errors: PermissionDenied    it belongs to another state: names both
//         Unavailable         another coordinator runs on it; those of
//         FileError()
absl::StatusOr<OpenFile> LockCheckpoints(const std::string& path,
                                         const StateDir& state, bool adopt);

}  // namespace paceline
