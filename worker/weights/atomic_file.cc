#include "worker/weights/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

constexpr int kTemporaryNames = 100;
constexpr size_t kMaxWriteBytes = 1 << 30;  // write() may take less than 2 GiB

absl::Status FileError(int error, absl::string_view what,
                       const std::string& path) {
  const absl::Status status =
      absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return full ? absl::ResourceExhaustedError(status.message()) : status;
}

// The rename itself lies in the folder's data.
absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const int descriptor =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, "open", folder);
  const int failed = fsync(descriptor) != 0 ? errno : 0;
  close(descriptor);
  // Some file systems cannot sync folders, and say so with EINVAL.
  if (failed != 0 && failed != EINVAL) return FileError(failed, "sync", folder);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(
    const std::string& path) {
  for (int i = 0; i < kTemporaryNames; ++i) {
    std::string temporary = absl::StrCat(path, ".part", getpid(), "-", i);
    const int descriptor =
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      return std::unique_ptr<AtomicFile>(
          new AtomicFile(path, std::move(temporary), descriptor));
    }
    if (errno != EEXIST) return FileError(errno, "create", temporary);
  }
  return FileError(EEXIST, "create a temporary file beside", path);
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!committed_) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(),
                                  std::min(bytes.size(), kMaxWriteBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      return FileError(errno, "write", path_);
    }
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

// close() too may bring the news that the disk is full.
absl::Status AtomicFile::Flush() {
  if (fsync(descriptor_) != 0) return FileError(errno, "sync", path_);
  if (close(std::exchange(descriptor_, -1)) != 0) {
    return FileError(errno, "close", path_);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  PACELINE_RETURN_IF_ERROR(Flush());
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return FileError(errno, "replace", path_);
  }
  committed_ = true;
  return SyncFolderOf(path_);
}

}  // namespace paceline
