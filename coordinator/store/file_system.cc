#include "coordinator/store/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

constexpr int64_t kHashBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::string> Sha256OfFile(int file, const std::string& path) {
  Sha256 hash;
  for (int64_t offset = 0;;) {
    PACELINE_ASSIGN_OR_RETURN(const std::string data,
                              ReadAt(file, path, offset, kHashBytes));
    if (data.empty()) break;
    hash.Update(data);
    offset += static_cast<int64_t>(data.size());
  }
  return hash.HexDigest();
}

absl::StatusOr<std::unique_ptr<StateDir>> StateDir::Open(
    const std::string& path) {
  PACELINE_RETURN_IF_ERROR(MakeFolders(path));
  const std::string lock_path = path + "/lock";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return FileError("open", lock_path, errno);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(lock);
    if (error != EWOULDBLOCK) return FileError("lock", lock_path, error);
    return absl::FailedPreconditionError(
        absl::StrCat("another paceline-coordinator runs on ", path,
                     ": stop it, or give this one another --state"));
  }
  return std::unique_ptr<StateDir>(new StateDir(path, lock));
}

int64_t StateDir::NewestJobFolder() const {
  int64_t newest = 0;
  std::error_code ignored;  // no such folder yet: no jobs
  for (std::filesystem::directory_iterator at(jobs(), ignored), end;
       !ignored && at != end; at.increment(ignored)) {
    int64_t number = 0;
    if (absl::SimpleAtoi(at->path().filename().string(), &number)) {
      newest = std::max(newest, number);
    }
  }
  return newest;
}

StateDir::~StateDir() { close(lock_); }

}  // namespace paceline
