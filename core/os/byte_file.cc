#include "core/os/byte_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/os/read_access.h"

namespace paceline {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

}  // namespace

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
