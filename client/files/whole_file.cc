#include "client/files/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/os/files.h"

namespace paceline {
namespace {

absl::Status CannotRead(const std::string& path, absl::string_view why) {
  return InvalidArgument("cannot read ", path, ": ", why);
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          int64_t most_bytes) {
  // O_NONBLOCK: a pipe without a writer would hold us up; it is refused below.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return CannotRead(path, std::strerror(errno));
  const absl::Cleanup closing = [file] { close(file); };
  struct stat info;
  if (fstat(file, &info) != 0) return CannotRead(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return CannotRead(path, "it is no regular file");
  if (info.st_size > most_bytes) {
    return CannotRead(
        path,
        absl::StrCat("it has ", HumanBytes(static_cast<double>(info.st_size)),
                     ", at most ", HumanBytes(static_cast<double>(most_bytes)),
                     " are read"));
  }
  std::string text;
  const int error = ReadAll(file, info.st_size, text);
  if (error != 0) return CannotRead(path, std::strerror(error));
  return text;
}

int ReadAll(int file, int64_t most_bytes, std::string& text) {
  text.resize(most_bytes);
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = read(file, text.data() + filled, text.size() - filled);
    if (got == 0) break;
    if (got > 0) {
      filled += got;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  text.resize(filled);
  return 0;
}

namespace {

// Opens a new file beside `path`; `part` is its name.
absl::StatusOr<int> OpenPart(const std::string& path, std::string& part) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) &&
      !std::filesystem::is_regular_file(path, ignored)) {
    return InvalidArgument("cannot write ", path, ": it is no regular file");
  }
  const int file = MakeFileBeside(path, 0666, part);
  if (file >= 0) return file;
  return InvalidArgument("cannot write ", path, ": ", std::strerror(errno));
}

}  // namespace

absl::Status CheckWritable(const std::string& path) {
  std::string part;
  PACELINE_ASSIGN_OR_RETURN(const int file, OpenPart(path, part));
  close(file);
  unlink(part.c_str());
  return absl::OkStatus();
}

absl::Status WriteWholeFile(const std::string& path, absl::string_view text) {
  std::string part;
  PACELINE_ASSIGN_OR_RETURN(const int file, OpenPart(path, part));
  absl::Status written = WriteAt(file, path, 0, text);
  const auto check = [&](bool done) {
    if (!done) written.Update(FileError("write", path, errno));
  };
  check(fsync(file) == 0);
  check(close(file) == 0);
  if (written.ok()) check(rename(part.c_str(), path.c_str()) == 0);
  if (written.ok()) return written;
  unlink(part.c_str());
  return FailedPrecondition(written.message());
}

void GuardStandardStreams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO;
       ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // Open for the other direction, so that using it is still EBADF.  The
    // lowest free number is this one.
    const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", mode) != descriptor) return;
  }
}

}  // namespace paceline
