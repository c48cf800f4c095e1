#include "core/os/files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

// Read at once of a file that does not say its size.
constexpr int64_t kUnknownBytes = 4096;

}  // namespace

absl::Status FileError(absl::string_view doing, const std::string& path,
                       int error) {
  const std::string message =
      absl::StrCat("cannot ", doing, " ", path, ": ",
                   std::generic_category().message(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ResourceExhausted(message, "; make room on that disk");
    case ENOENT:
      return NotFound(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return PermissionDenied(message);
    default:
      return Internal(message);
  }
}

absl::Status WriteAt(int file, const std::string& path, int64_t offset,
                     absl::string_view data) {
  while (!data.empty()) {
    const ssize_t written = pwrite(file, data.data(), data.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("write", path, errno);
    data.remove_prefix(written);
    offset += written;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAt(int file, const std::string& path,
                                   int64_t offset, int64_t limit) {
  std::string data(limit, '\0');
  int64_t got = 0;
  while (got < limit) {
    const ssize_t part =
        pread(file, data.data() + got, limit - got, offset + got);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return FileError("read", path, errno);
    if (part == 0) break;
    got += part;
  }
  data.resize(got);
  return data;
}

absl::Status SyncFile(int file, const std::string& path) {
  return fsync(file) == 0 ? absl::OkStatus() : FileError("sync", path, errno);
}

absl::Status SyncFolder(const std::string& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return FileError("open", folder, errno);
  const absl::Status synced = SyncFile(file, folder);
  close(file);
  return synced;
}

absl::Status MakeFolders(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(folder, error)) return absl::OkStatus();
  fs::create_directories(folder, error);
  if (error) return FileError("make the folder", folder, error.value());
  fs::permissions(folder, fs::perms::owner_all, error);
  if (error) return FileError("protect", folder, error.value());
  return absl::OkStatus();
}

std::string HomeFolder() {
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return home;
  const passwd* const user = getpwuid(geteuid());
  return user == nullptr ? "" : user->pw_dir;
}

std::string UserStateFolder() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') {
    return absl::StrCat(state, "/paceline");
  }
  const std::string home = HomeFolder();
  return home.empty() ? "" : home + "/.local/state/paceline";
}

absl::Status CheckOwnFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  const auto refused = [&folder](const auto&... why) {
    return PermissionDenied("the folder ", folder,
                            " is not this user's alone: ", why...);
  };
  struct stat about = {};
  if (lstat(folder.c_str(), &about) != 0) {
    return FileError("look at", folder, errno);
  }
  if (S_ISLNK(about.st_mode)) return refused("it is a link; name its target");
  if (about.st_uid != geteuid()) {
    return refused("user ", about.st_uid, " has made it; choose another one");
  }
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refused("others may write there; chmod go-w ", folder);
  }
  std::error_code error;
  fs::path above = fs::canonical(folder, error);
  if (error) return FileError("look at", folder, error.value());
  while (above.has_relative_path()) {
    above = above.parent_path();
    if (stat(above.c_str(), &about) != 0) {
      return FileError("look at", above, errno);
    }
    // Root may work in a folder of a user whom it trusts.
    const bool is_foreign =
        about.st_uid != 0 && about.st_uid != geteuid() && geteuid() != 0;
    const bool is_shared =
        (about.st_mode & S_IWOTH) != 0 && (about.st_mode & S_ISVTX) == 0;
    if (is_foreign || is_shared) {
      return refused("others may change ", above.string(),
                     ", which holds it; choose another one");
    }
  }
  return absl::OkStatus();
}

int MakeFileBeside(const std::string& path, int mode, std::string& made) {
  constexpr size_t kMostName = NAME_MAX - 32;
  const size_t name_bytes = path.size() - (path.rfind('/') + 1);
  const size_t cut = name_bytes > kMostName ? name_bytes - kMostName : 0;
  const std::string stem = path.substr(0, path.size() - cut) + ".part";
  made = stem;
  for (int i = 1;; ++i) {
    const int file =
        open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST) return file;
    made = absl::StrCat(stem, "-", getpid(), "-", i);
  }
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view text, int mode) {
  // A name that no other writer has.
  std::string beside = absl::StrCat(path, ".XXXXXX");
  const int file = mkostemp(beside.data(), O_CLOEXEC);
  if (file < 0) return FileError("make", beside, errno);
  absl::Status written = WriteAt(file, beside, 0, text);
  if (written.ok() && fchmod(file, mode) != 0) {
    written = FileError("protect", beside, errno);
  }
  if (written.ok()) written = SyncFile(file, beside);
  close(file);
  if (written.ok() && rename(beside.c_str(), path.c_str()) != 0) {
    written = FileError("rename to", path, errno);
  }
  if (!written.ok()) {
    unlink(beside.c_str());
    return written;
  }
  const std::string folder = std::filesystem::path(path).parent_path();
  return SyncFolder(folder.empty() ? "." : folder);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError("open", path, errno);
  struct stat info = {};
  fstat(file, &info);
  int64_t most = std::min<int64_t>(info.st_size, limit) + 1;
  absl::StatusOr<std::string> text = ReadAt(file, path, 0, most);
  // It has grown, or does not say its size, as the files of /proc.
  while (text.ok() && std::ssize(*text) == most && most <= limit) {
    most = std::min(limit + 1, most + kUnknownBytes);
    text = ReadAt(file, path, 0, most);
  }
  close(file);
  if (text.ok() && static_cast<int64_t>(text->size()) > limit) {
    return InvalidArgument(path, " has more than ", limit, " bytes");
  }
  return text;
}

}  // namespace paceline
