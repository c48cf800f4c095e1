#include "core/obs/port_file.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "core/os/files.h"

namespace paceline {

absl::Status WritePortFile(const std::string& path, const std::string& grpc,
                           const std::string& http) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status written = WriteFileAtomically(
      path, absl::StrCat("{\"grpc\": \"", grpc, "\", \"http\": \"", http,
                         "\", \"pid\": ", getpid(), "}\n"));
  if (written.ok()) return written;
  return absl::UnavailableError(
      absl::StrCat("cannot write --port-file ", path, ": ", written.message()));
}

}  // namespace paceline
