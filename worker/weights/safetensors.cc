#include "worker/weights/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/model/safetensors_layout.h"
#include "worker/weights/atomic_file.h"
#include "worker/weights/safetensors_header.h"

namespace paceline {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxReadBytes = 1 << 30;

// An open file that knows its name.
struct Source {
  const std::string& path;
  int descriptor;
};

absl::Status Refuse(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": not a safetensors file: ", why));
}

absl::Status ReadAt(const Source& source, int64_t offset, uint8_t* target,
                    int64_t bytes) {
  while (bytes > 0) {
    const ssize_t got = pread(source.descriptor, target,
                              std::min(bytes, kMaxReadBytes), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(errno,
                                 absl::StrCat("cannot read ", source.path));
    }
    if (got == 0) return Refuse(source.path, "it shrank while being read");
    target += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FileBytes(const Source& source, int64_t max_bytes) {
  struct stat status = {};
  if (fstat(source.descriptor, &status) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot read ", source.path));
  }
  if (!S_ISREG(status.st_mode)) {
    return Refuse(source.path, "it is no regular file");
  }
  if (status.st_size > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(source.path, ": ", int64_t{status.st_size},
                     " bytes, the limit is ", max_bytes));
  }
  return int64_t{status.st_size};
}

absl::StatusOr<std::string> ReadHeader(const Source& source,
                                       int64_t file_bytes) {
  if (file_bytes < kLengthBytes) {
    return Refuse(source.path, absl::StrCat("only ", file_bytes, " bytes"));
  }
  uint8_t encoded[kLengthBytes] = {};
  PACELINE_RETURN_IF_ERROR(ReadAt(source, 0, encoded, kLengthBytes));
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) {
    length = length << 8 | encoded[i];
  }
  if (length > uint64_t{kMaxSafetensorsHeaderBytes}) {
    return Refuse(source.path,
                  absl::StrCat("a header of ", length, " bytes, the limit is ",
                               kMaxSafetensorsHeaderBytes));
  }
  if (length > static_cast<uint64_t>(file_bytes - kLengthBytes)) {
    return Refuse(source.path,
                  absl::StrCat("cut short: a header of ", length,
                               " bytes in a file of ", file_bytes));
  }
  std::string header(length, '\0');
  PACELINE_RETURN_IF_ERROR(ReadAt(source, kLengthBytes,
                                  reinterpret_cast<uint8_t*>(header.data()),
                                  static_cast<int64_t>(length)));
  return header;
}

}  // namespace

absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path,
                                                int64_t max_bytes) {
  // O_NONBLOCK: a pipe must not hold up whoever opens it; the check for a
  // regular file then turns it away.
  const Source source{path,
                      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (source.descriptor < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  const auto closer =
      absl::MakeCleanup([&source] { close(source.descriptor); });
  PACELINE_ASSIGN_OR_RETURN(const int64_t file_bytes,
                            FileBytes(source, max_bytes));
  PACELINE_ASSIGN_OR_RETURN(const std::string json,
                            ReadHeader(source, file_bytes));
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(json.size());
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, file_bytes - data_begin);
  if (!header.ok()) return Refuse(path, header.status().message());

  SafetensorsFile file;
  file.metadata = std::move(header->metadata);
  file.tensors.reserve(header->tensors.size());
  for (TensorPlace& place : header->tensors) {
    Tensor tensor = Tensor::Allocate(place.dtype, std::move(place.shape));
    PACELINE_RETURN_IF_ERROR(ReadAt(source, data_begin + place.offset,
                                    tensor.data.get(), place.bytes));
    file.tensors.push_back({std::move(place.name), std::move(tensor)});
  }
  return file;
}

absl::Status WriteSafetensors(
    const std::string& path, absl::Span<const NamedTensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  std::vector<TensorPlace> places;
  places.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    places.push_back({named.name, named.tensor.dtype, named.tensor.shape});
  }
  PACELINE_ASSIGN_OR_RETURN(const SafetensorsLayout layout,
                            LayOut(std::move(places), metadata));
  if (static_cast<int64_t>(layout.header.size()) - kLengthBytes >
      kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", tensors.size(), " tensors need a header of ",
                     layout.header.size() - kLengthBytes,
                     " bytes, the limit is ", kMaxSafetensorsHeaderBytes));
  }
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                            AtomicFile::Create(path));
  PACELINE_RETURN_IF_ERROR(file->Append(layout.header));
  for (const NamedTensor& named : tensors) {
    PACELINE_RETURN_IF_ERROR(
        file->Append({reinterpret_cast<const char*>(named.tensor.data.get()),
                      static_cast<size_t>(named.tensor.bytes())}));
  }
  return file->Commit();
}

}  // namespace paceline
