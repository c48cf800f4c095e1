#include "coordinator/store/file_system.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

constexpr int64_t kHashBytes = 1 << 20;
constexpr char kIdentity[] = "/identity";
constexpr int kIdentityWords = 4;
constexpr int64_t kMostIdentityBytes = 8192;  // with a path

// The file <path>/lock, which holds the lock until it is closed.
absl::StatusOr<OpenFile> LockFolder(const std::string& path,
                                    absl::string_view option) {
  const std::string lock_path = path + "/lock";
  OpenFile lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.is_open()) return FileError("open", lock_path, errno);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return FileError("lock", lock_path, errno);
  return Unavailable("another paceline-coordinator runs on ", path,
                     ": stop it, or give this one another ", option);
}

// The lines of <path>/identity, at least two; empty lines for no file.
absl::StatusOr<std::vector<std::string>> ReadIdentity(const std::string& path) {
  const auto text = ReadFile(path + kIdentity, kMostIdentityBytes);
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  std::vector<std::string> lines = absl::StrSplit(text.value_or(""), '\n');
  lines.resize(std::max<size_t>(lines.size(), 2));
  return lines;
}

}  // namespace

absl::StatusOr<std::string> Sha256OfFile(int file, const std::string& path) {
  Sha256 hash;
  for (int64_t offset = 0;;) {
    PACELINE_ASSIGN_OR_RETURN(const std::string data,
                              ReadAt(file, path, offset, kHashBytes));
    if (data.empty()) break;
    hash.Update(data);
    offset += static_cast<int64_t>(data.size());
  }
  return hash.HexDigest();
}

absl::StatusOr<std::unique_ptr<StateDir>> StateDir::Open(
    const std::string& path) {
  PACELINE_RETURN_IF_ERROR(MakeFolders(path));
  PACELINE_ASSIGN_OR_RETURN(OpenFile lock, LockFolder(path, "--state"));
  std::unique_ptr<StateDir> state(new StateDir(path, std::move(lock)));
  PACELINE_ASSIGN_OR_RETURN(const std::vector<std::string> kept,
                            ReadIdentity(path));
  state->identity_ = kept[0];
  if (!kept[0].empty()) return state;
  std::random_device random;
  for (int i = 0; i < kIdentityWords; ++i) {
    absl::StrAppend(&state->identity_, absl::Hex(random(), absl::kZeroPad8));
  }
  PACELINE_RETURN_IF_ERROR(
      WriteFileAtomically(path + kIdentity, state->identity_ + "\n"));
  return state;
}

absl::StatusOr<OpenFile> LockCheckpoints(const std::string& path,
                                         const StateDir& state, bool adopt) {
  PACELINE_RETURN_IF_ERROR(MakeFolders(path));
  PACELINE_ASSIGN_OR_RETURN(OpenFile lock,
                            LockFolder(path, "--checkpoint-dir"));
  PACELINE_ASSIGN_OR_RETURN(const std::vector<std::string> owner,
                            ReadIdentity(path));
  if (!owner[0].empty() && owner[0] != state.identity() && !adopt) {
    return PermissionDenied(
        "the checkpoints in ", path,
        " belong to the coordinator whose state "
        "is in ",
        owner[1], " (identity ", owner[0], "), not to this one in ",
        state.path(), " (identity ", state.identity(),
        "): give this one a folder of its own with --checkpoint-dir, or, where "
        "that coordinator is no more, start this one once with "
        "--adopt-checkpoints, which keeps the files");
  }
  const std::string own =
      absl::StrCat(state.identity(), "\n", state.path(), "\n");
  if (absl::StrJoin(owner, "\n") != own) {
    PACELINE_RETURN_IF_ERROR(WriteFileAtomically(path + kIdentity, own));
  }
  return lock;
}

int64_t NewestJobFolder(const std::string& path) {
  int64_t newest = 0;
  std::error_code ignored;  // no such folder yet: no jobs
  for (std::filesystem::directory_iterator at(path, ignored), end;
       !ignored && at != end; at.increment(ignored)) {
    int64_t number = 0;
    if (absl::SimpleAtoi(at->path().filename().string(), &number)) {
      newest = std::max(newest, number);
    }
  }
  return newest;
}

}  // namespace paceline
