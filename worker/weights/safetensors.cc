#include "worker/weights/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/model/safetensors_layout.h"
#include "core/transfer/checksum.h"
#include "worker/weights/atomic_file.h"
#include "worker/weights/safetensors_header.h"

namespace paceline {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxReadBytes = 1 << 30;
constexpr int64_t kHashBytes = 1 << 20;

absl::Status Refuse(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": not a safetensors file: ", why));
}

// An open file whose header has been checked.  Thread-compatible.
class Source {
 public:
  static absl::StatusOr<std::unique_ptr<Source>> Open(const std::string& path,
                                                      int64_t max_bytes) {
    // O_NONBLOCK: a pipe must not hold up whoever opens it; the check for a
    // regular file then turns it away.
    const int descriptor =
        open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    }
    auto source = std::unique_ptr<Source>(new Source(path, descriptor));
    PACELINE_RETURN_IF_ERROR(source->CheckSize(max_bytes));
    PACELINE_RETURN_IF_ERROR(source->ReadHeader());
    return source;
  }
  ~Source() { close(descriptor_); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  int64_t file_bytes() const { return file_bytes_; }
  int64_t data_begin() const { return data_begin_; }
  SafetensorsHeader& header() { return header_; }

  absl::StatusOr<NamedTensor> ReadTensor(TensorPlace place) const {
    Tensor tensor = Tensor::Allocate(place.dtype, std::move(place.shape));
    PACELINE_RETURN_IF_ERROR(
        ReadAt(data_begin_ + place.offset, tensor.data.get(), place.bytes));
    return NamedTensor{std::move(place.name), std::move(tensor)};
  }

  absl::Status ReadAt(int64_t offset, uint8_t* target, int64_t bytes) const {
    while (bytes > 0) {
      const ssize_t got =
          pread(descriptor_, target, std::min(bytes, kMaxReadBytes), offset);
      if (got < 0) {
        if (errno == EINTR) continue;
        return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
      }
      if (got == 0) return Refuse(path_, "it shrank while being read");
      target += got;
      offset += got;
      bytes -= got;
    }
    return absl::OkStatus();
  }

 private:
  Source(const std::string& path, int descriptor)
      : path_(path), descriptor_(descriptor) {}

  absl::Status CheckSize(int64_t max_bytes);
  absl::StatusOr<int64_t> ReadHeaderBytes() const;
  absl::Status ReadHeader();

  const std::string path_;
  const int descriptor_;
  int64_t file_bytes_ = 0;
  int64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

absl::Status Source::CheckSize(int64_t max_bytes) {
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
  }
  if (!S_ISREG(status.st_mode)) return Refuse(path_, "it is no regular file");
  file_bytes_ = status.st_size;
  if (file_bytes_ > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path_, ": ", file_bytes_, " bytes, the limit is ", max_bytes));
  }
  return absl::OkStatus();
}

// What the file says its header has.
absl::StatusOr<int64_t> Source::ReadHeaderBytes() const {
  if (file_bytes_ < kLengthBytes) {
    return Refuse(path_, absl::StrCat("only ", file_bytes_, " bytes"));
  }
  uint8_t encoded[kLengthBytes] = {};
  PACELINE_RETURN_IF_ERROR(ReadAt(0, encoded, kLengthBytes));
  // TorchScript's files and torch.save's are archives.
  if (std::memcmp(encoded, "PK\x03\x04", 4) == 0) {
    return Refuse(path_,
                  "it is a file of PyTorch's; save the tensors by "
                  "safetensors.torch.save_file (a scripted module is for "
                  "model.name: script, with model.file)");
  }
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) {
    length = length << 8 | encoded[i];
  }
  if (length > uint64_t{kMaxSafetensorsHeaderBytes}) {
    return Refuse(path_,
                  absl::StrCat("a header of ", length, " bytes, the limit is ",
                               kMaxSafetensorsHeaderBytes));
  }
  if (length > static_cast<uint64_t>(file_bytes_ - kLengthBytes)) {
    return Refuse(path_, absl::StrCat("cut short: a header of ", length,
                                      " bytes in a file of ", file_bytes_));
  }
  return static_cast<int64_t>(length);
}

absl::Status Source::ReadHeader() {
  PACELINE_ASSIGN_OR_RETURN(const int64_t bytes, ReadHeaderBytes());
  std::string json(bytes, '\0');
  PACELINE_RETURN_IF_ERROR(
      ReadAt(kLengthBytes, reinterpret_cast<uint8_t*>(json.data()), bytes));
  data_begin_ = kLengthBytes + bytes;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, file_bytes_ - data_begin_);
  if (!header.ok()) return Refuse(path_, header.status().message());
  header_ = *std::move(header);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path,
                                                int64_t max_bytes) {
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Source> source,
                            Source::Open(path, max_bytes));
  SafetensorsFile file;
  file.metadata = std::move(source->header().metadata);
  file.tensors.reserve(source->header().tensors.size());
  for (TensorPlace& place : source->header().tensors) {
    PACELINE_ASSIGN_OR_RETURN(NamedTensor tensor,
                              source->ReadTensor(std::move(place)));
    file.tensors.push_back(std::move(tensor));
  }
  return file;
}

absl::StatusOr<SafetensorsFile> ReadSomeSafetensors(
    const std::string& path, const ChooseTensors& choose) {
  PACELINE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Source> source,
      Source::Open(path, std::numeric_limits<int64_t>::max()));
  SafetensorsHeader& header = source->header();
  PACELINE_ASSIGN_OR_RETURN(const std::set<std::string> wanted,
                            choose(header.tensors));
  SafetensorsFile file;
  file.metadata = std::move(header.metadata);
  for (TensorPlace& place : header.tensors) {
    if (!wanted.contains(place.name)) continue;
    PACELINE_ASSIGN_OR_RETURN(NamedTensor tensor,
                              source->ReadTensor(std::move(place)));
    file.tensors.push_back(std::move(tensor));
  }
  return file;
}

absl::StatusOr<WeightsSummary> SummarizeSafetensors(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Source> source,
      Source::Open(path, std::numeric_limits<int64_t>::max()));
  WeightsSummary summary;
  summary.file_bytes = source->file_bytes();
  summary.metadata = std::move(source->header().metadata);
  summary.tensors = std::move(source->header().tensors);
  for (TensorPlace& place : summary.tensors) {
    place.offset += source->data_begin();
  }
  Sha256 hash;
  std::string piece;
  for (int64_t at = 0; at < summary.file_bytes;
       at += static_cast<int64_t>(piece.size())) {
    piece.resize(std::min(kHashBytes, summary.file_bytes - at));
    PACELINE_RETURN_IF_ERROR(
        source->ReadAt(at, reinterpret_cast<uint8_t*>(piece.data()),
                       static_cast<int64_t>(piece.size())));
    hash.Update(piece);
  }
  summary.sha256 = hash.HexDigest();
  return summary;
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
