#include "worker/data/idx_file.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int kMaxRank = 8;
constexpr int64_t kChunkBytes = 1 << 20;
constexpr unsigned kZlibBufferBytes = 1 << 17;

struct GzCloser {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzHandle = std::unique_ptr<gzFile_s, GzCloser>;

absl::Status Refuse(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", why, "; fetch the file again, or point data.path elsewhere"));
}

absl::StatusOr<GzHandle> Open(const std::string& path) {
  // A pipe would block here for good, out of reach of any cancellation.
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return Refuse(path, "not a regular file");
  }
  errno = 0;
  GzHandle file(gzopen(path.c_str(), "rbe"));
  if (!file) {
    return absl::ErrnoToStatus(errno != 0 ? errno : ENOMEM,
                               absl::StrCat("cannot open ", path));
  }
  gzbuffer(file.get(), kZlibBufferBytes);
  return file;
}

// Reads up to `bytes`; fewer at the end of the file.
absl::StatusOr<int64_t> Read(gzFile file, const std::string& path,
                             uint8_t* target, int64_t bytes) {
  const int got = gzread(file, target, static_cast<unsigned>(bytes));
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  if (code == Z_ERRNO) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  }
  // Z_BUF_ERROR: the compressed stream ends in its middle.
  if (got < 0 || code != Z_OK) {
    return Refuse(path, absl::StrCat("damaged gzip (", message, ")"));
  }
  return got;
}

absl::StatusOr<Shape> ReadShape(gzFile file, const std::string& path) {
  uint8_t magic[4] = {};
  PACELINE_ASSIGN_OR_RETURN(int64_t got, Read(file, path, magic, 4));
  if (got < 4 || magic[0] != 0 || magic[1] != 0) {
    return Refuse(path, "not an IDX file: it does not begin with 00 00");
  }
  if (magic[2] != kUnsignedByte) {
    return Refuse(path, absl::StrCat("IDX of type 0x", absl::Hex(magic[2]),
                                     ", need 0x8 (bytes)"));
  }
  const int rank = magic[3];
  if (rank < 1 || rank > kMaxRank) {
    return Refuse(path,
                  absl::StrCat(rank, " dimensions, need 1 to ", kMaxRank));
  }
  uint8_t sizes[4 * kMaxRank] = {};
  PACELINE_ASSIGN_OR_RETURN(got, Read(file, path, sizes, 4 * rank));
  if (got < 4 * rank) return Refuse(path, "cut short in its header");
  Shape shape;
  for (const uint8_t* size = sizes; size < sizes + 4 * rank; size += 4) {
    shape.push_back(int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 |
                    size[3]);
  }
  return shape;
}

// Grows by what has really been read, so that a lying header costs nothing.
absl::StatusOr<std::vector<uint8_t>> ReadValues(gzFile file,
                                                const std::string& path,
                                                int64_t need) {
  std::vector<uint8_t> values;
  int64_t have = 0;
  while (have < need) {
    const int64_t chunk = std::min(need - have, std::max(have, kChunkBytes));
    const int64_t ask = std::min<int64_t>(chunk, 1 << 30);  // gzread: int
    values.resize(have + ask);
    PACELINE_ASSIGN_OR_RETURN(const int64_t got,
                              Read(file, path, values.data() + have, ask));
    have += got;
    if (got < ask) {
      return Refuse(path, absl::StrCat("cut short: got ", have,
                                       " values, its header says ", need));
    }
  }
  uint8_t beyond = 0;
  PACELINE_ASSIGN_OR_RETURN(const int64_t more, Read(file, path, &beyond, 1));
  if (more != 0) {
    return Refuse(path, absl::StrCat("longer than the ", need,
                                     " values that its header says"));
  }
  return values;
}

}  // namespace

absl::StatusOr<IdxFile> ReadIdx(const std::string& path, IdxHeaderCheck check) {
  PACELINE_ASSIGN_OR_RETURN(const GzHandle file, Open(path));
  IdxFile idx;
  idx.path = path;
  PACELINE_ASSIGN_OR_RETURN(idx.shape, ReadShape(file.get(), path));
  const int64_t need = NumElements(idx.shape);
  if (need < 0) {
    return Refuse(path, absl::StrCat("impossible size [",
                                     absl::StrJoin(idx.shape, ", "), "]"));
  }
  PACELINE_RETURN_IF_ERROR(check(idx));
  PACELINE_ASSIGN_OR_RETURN(idx.values, ReadValues(file.get(), path, need));
  return idx;
}

}  // namespace paceline
