#include "core/obs/port_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot write --port-file ", path, ": ",
                   std::generic_category().message(error)));
}

// 0, or the errno.
int WriteWhole(const std::string& path, const std::string& text) {
  const int file =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return errno;
  const ssize_t written = write(file, text.data(), text.size());
  const int error = written < 0 ? errno : ENOSPC;
  close(file);
  return written == static_cast<ssize_t>(text.size()) ? 0 : error;
}

}  // namespace

absl::Status WritePortFile(const std::string& path, const std::string& grpc,
                           const std::string& http) {
  if (path.empty()) return absl::OkStatus();
  const std::string text =
      absl::StrCat("{\"grpc\": \"", grpc, "\", \"http\": \"", http,
                   "\", \"pid\": ", getpid(), "}\n");
  // Beside it first: who waits for the file must never read half of it.
  const std::string part = absl::StrCat(path, ".part");
  int error = WriteWhole(part, text);
  if (error == 0 && std::rename(part.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error == 0) return absl::OkStatus();
  unlink(part.c_str());
  return CannotWrite(path, error);
}

}  // namespace paceline
