#include "core/os/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

// Read at once of a file that does not say its size.
constexpr int64_t kUnknownBytes = 4096;

namespace fs = std::filesystem;

constexpr int kReading = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

struct Descriptor {
  ~Descriptor() {
    if (number >= 0) close(number);
  }

  int number;
};

// Set before there are threads that read it.
std::optional<ReadAccess>& Limits() {
  static auto* const limits = new std::optional<ReadAccess>;
  return *limits;
}

// `path` as it is spelled, and with its links followed.
std::vector<std::string> BothPaths(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return {fs::path(path).lexically_normal(), error ? fs::path(path) : real};
}

// Returns the rest of `path` after `folder`, from a slash on; nothing: it is
// neither the folder nor in it.
std::optional<absl::string_view> Below(absl::string_view path,
                                       absl::string_view folder) {
  while (absl::EndsWith(folder, "/")) folder.remove_suffix(1);
  if (!absl::StartsWith(path, folder)) return std::nullopt;
  path.remove_prefix(folder.size());
  if (!path.empty() && path.front() != '/') return std::nullopt;
  return path;
}

// opened: where `path` leads to
absl::Status Judge(const std::string& path, const std::string& opened) {
  const ReadAccess& limits = *Limits();
  for (const std::string& never : limits.never) {
    for (const std::string& each : BothPaths(never)) {
      if (!Below(opened, each).has_value()) continue;
      return PermissionDenied(path, ": no job reads this worker's own state");
    }
  }
  bool is_hidden = false;
  for (const std::string& folder : limits.folders) {
    for (const std::string& each : BothPaths(folder)) {
      const auto below = Below(opened, each);
      if (!below.has_value()) continue;
      if (limits.hidden || !absl::StrContains(*below, "/.")) {
        return absl::OkStatus();
      }
      is_hidden = true;
    }
  }
  return PermissionDenied(
      path, ": jobs may not read it: it is ",
      is_hidden ? "hidden (a name begins with a dot) below " : "not below ",
      absl::StrJoin(limits.folders, ", "),
      "; put it there, or give the worker --data-dir DIR for each folder that "
      "jobs may read");
}

absl::Status CheckKind(const std::string& path, int descriptor, FileKind kind) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  }
  if ((S_ISREG(status.st_mode) && kind != FileKind::kFolder) ||
      (S_ISDIR(status.st_mode) && kind != FileKind::kFile)) {
    return absl::OkStatus();
  }
  return InvalidArgument(path, kind == FileKind::kFolder ? ": not a folder"
                               : kind == FileKind::kFile
                                   ? ": not a regular file"
                                   : ": neither a regular file nor a folder");
}

size_t StampOf(const struct stat& status) {
  return absl::HashOf(status.st_dev, status.st_ino, status.st_size,
                      status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                      status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
}

absl::Status CannotOpen(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
}

constexpr int64_t kPieceBytes = 1 << 20;

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

namespace {

// Reads `bytes` bytes, or fewer at the end of the file; returns how many.
absl::StatusOr<int64_t> ReadInto(int file, const std::string& path,
                                 int64_t offset, void* to, int64_t bytes) {
  int64_t got = 0;
  while (got < bytes) {
    const ssize_t part =
        pread(file, static_cast<char*>(to) + got, bytes - got, offset + got);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return FileError("read", path, errno);
    if (part == 0) break;
    got += part;
  }
  return got;
}

}  // namespace

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
  PACELINE_ASSIGN_OR_RETURN(const int64_t got,
                            ReadInto(file, path, offset, data.data(), limit));
  data.resize(got);
  return data;
}

absl::Status SyncFile(int file, const std::string& path) {
  return fsync(file) == 0 ? absl::OkStatus() : FileError("sync", path, errno);
}

absl::Status SyncFolder(const std::string& folder) {
  const Descriptor file{
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (file.number < 0) return FileError("open", folder, errno);
  return SyncFile(file.number, folder);
}

absl::Status MakeFolders(const std::string& folder) {
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
  const std::string folder = fs::path(path).parent_path();
  return SyncFolder(folder.empty() ? "." : folder);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0) return FileError("open", path, errno);
  struct stat info = {};
  fstat(file.number, &info);
  int64_t most = std::min<int64_t>(info.st_size, limit) + 1;
  absl::StatusOr<std::string> text = ReadAt(file.number, path, 0, most);
  // It has grown, or does not say its size, as the files of /proc.
  while (text.ok() && std::ssize(*text) == most && most <= limit) {
    most = std::min(limit + 1, most + kUnknownBytes);
    text = ReadAt(file.number, path, 0, most);
  }
  if (text.ok() && static_cast<int64_t>(text->size()) > limit) {
    return InvalidArgument(path, " has more than ", limit, " bytes");
  }
  return text;
}

void LimitReads(std::optional<ReadAccess> access) {
  Limits() = std::move(access);
}

absl::StatusOr<int> OpenToRead(const std::string& path, FileKind kind) {
  if (!Limits().has_value()) {
    Descriptor file{open(path.c_str(), kReading)};
    if (file.number < 0) return CannotOpen(path);
    PACELINE_RETURN_IF_ERROR(CheckKind(path, file.number, kind));
    return std::exchange(file.number, -1);
  }
  std::error_code error;
  // O_PATH finds a file and does not open it.
  const Descriptor found{open(path.c_str(), O_PATH | O_CLOEXEC)};
  if (found.number < 0) {
    const absl::Status missing = CannotOpen(path);
    const fs::path spelled = fs::absolute(path, error).lexically_normal();
    PACELINE_RETURN_IF_ERROR(Judge(path, spelled));
    return missing;
  }
  const std::string link = absl::StrCat("/proc/self/fd/", found.number);
  const fs::path opened = fs::read_symlink(link, error);
  if (error) {
    return absl::ErrnoToStatus(
        error.value(),
        absl::StrCat("cannot tell where ", path, " lies, for want of ", link));
  }
  PACELINE_RETURN_IF_ERROR(Judge(path, opened));
  PACELINE_RETURN_IF_ERROR(CheckKind(path, found.number, kind));
  // The very file that was judged.
  const int file = open(link.c_str(), kReading);
  return file < 0 ? absl::StatusOr<int>(CannotOpen(path)) : file;
}

absl::Status CheckReadable(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const int file,
                            OpenToRead(path, FileKind::kEither));
  close(file);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path,
                                                    size_t most) {
  PACELINE_ASSIGN_OR_RETURN(const int file,
                            OpenToRead(path, FileKind::kFolder));
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(file), closedir);
  if (folder == nullptr) {
    close(file);
    return ResourceExhausted("no memory for ", path);
  }
  std::vector<FolderEntry> entries;
  while (entries.size() < most) {
    errno = 0;
    const dirent* const entry = readdir(folder.get());
    if (entry == nullptr && errno != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot list ", path));
    }
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat status = {};
    const bool leads = fstatat(file, name.c_str(), &status, 0) == 0;
    entries.push_back({name, leads && S_ISDIR(status.st_mode),
                       leads && S_ISREG(status.st_mode),
                       leads ? StampOf(status) : 0, status.st_size});
  }
  return entries;
}

size_t StampOf(const std::string& path) {
  constexpr size_t kMostEntries = 10'000;
  const absl::StatusOr<int> opened = OpenToRead(path, FileKind::kEither);
  if (!opened.ok()) return absl::HashOf(opened.status().code());
  const Descriptor file{*opened};
  struct stat status = {};
  fstat(file.number, &status);
  size_t stamp = StampOf(status);
  if (!S_ISDIR(status.st_mode)) return stamp;
  std::vector<std::string> folders = {path};
  for (size_t next = 0, left = kMostEntries; next < folders.size() && left > 0;
       ++next) {
    const auto entries = ListFolder(folders[next], left);
    if (!entries.ok()) continue;
    left -= entries->size();
    for (const FolderEntry& entry : *entries) {
      stamp = absl::HashOf(stamp, entry.name, entry.stamp);
      if (!entry.is_folder) continue;
      folders.push_back(absl::StrCat(folders[next], "/", entry.name));
    }
  }
  return stamp;
}

absl::StatusOr<std::unique_ptr<ByteFile>> ByteFile::Open(
    const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const int descriptor,
                            OpenToRead(path, FileKind::kFile));
  struct stat status {};
  const bool known = fstat(descriptor, &status) == 0;
  auto file = std::unique_ptr<ByteFile>(
      new ByteFile(path, descriptor, known ? status.st_size : 0));
  if (!known) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  }
  return file;
}

ByteFile::ByteFile(std::string path, int descriptor, int64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

ByteFile::~ByteFile() { close(descriptor_); }

absl::Status ByteFile::ReadAt(int64_t offset,
                              absl::Span<uint8_t> target) const {
  PACELINE_ASSIGN_OR_RETURN(
      const int64_t got,
      ReadInto(descriptor_, path_, offset, target.data(), std::ssize(target)));
  if (got == std::ssize(target)) return absl::OkStatus();
  return DataLoss(path_, ": ends at byte ", offset + got, ", ",
                  std::ssize(target) - got, " too early; it had ", size_,
                  " when it was opened");
}

absl::Status ByteFile::Scan(
    int64_t unit,
    absl::FunctionRef<absl::Status(int64_t, absl::Span<const uint8_t>)> take)
    const {
  const int64_t piece = std::max(unit, kPieceBytes / unit * unit);
  std::vector<uint8_t> bytes(std::min(piece, size_));
  for (int64_t offset = 0; offset < size_; offset += piece) {
    const absl::Span<uint8_t> now =
        absl::MakeSpan(bytes).first(std::min(piece, size_ - offset));
    PACELINE_RETURN_IF_ERROR(ReadAt(offset, now));
    PACELINE_RETURN_IF_ERROR(take(offset, now));
  }
  return absl::OkStatus();
}

}  // namespace paceline
