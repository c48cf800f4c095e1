#include "core/os/read_access.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
  while (!target.empty()) {
    const ssize_t got =
        pread(descriptor_, target.data(), target.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    }
    if (got == 0) {
      return DataLoss(path_, ": ends at byte ", offset, ", ", target.size(),
                      " too early; it had ", size_, " when it was opened");
    }
    offset += got;
    target.remove_prefix(got);
  }
  return absl::OkStatus();
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
