// The folder of the coordinator's state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/base/files.h"

namespace paceline {

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
