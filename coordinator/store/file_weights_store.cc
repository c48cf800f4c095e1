#include "coordinator/store/file_weights_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/records.h"
#include "coordinator/store/file_system.h"
#include "core/base/status_macros.h"

namespace paceline {

FileWeightsStore::FileWeightsStore(std::string folder)
    : folder_(std::move(folder)), loop_("weights") {}

std::string FileWeightsStore::FolderOf(JobId job) const {
  return absl::StrCat(folder_, "/", job.value);
}

absl::StatusOr<WeightsFile*> FileWeightsStore::Find(const Fence& fence) {
  const auto found = expected_.find(fence.job);
  if (found == expected_.end() || found->second.fence != fence) {
    return absl::AbortedError(absl::StrCat(
        "no weights are expected of job ", fence.job.value, ", attempt ",
        fence.attempt, ", plan ", fence.plan_version));
  }
  PACELINE_RETURN_IF_ERROR(found->second.file.status());
  return found->second.file->get();
}

void FileWeightsStore::Open(const Fence& fence, SafetensorsLayout layout,
                            std::function<void(absl::Status)> done) {
  loop_.Post([this, fence, layout = std::move(layout), done] {
    expected_.erase(fence.job);
    if (layout.tensors.empty()) {
      expected_.emplace(
          fence.job,
          Expected{fence, absl::UnavailableError(absl::StrCat(
                              "job ", fence.job.value,
                              " has not said yet how much there will be"))});
      done(absl::OkStatus());
      return;
    }
    const auto opened = expected_.emplace(
        fence.job,
        Expected{fence, WeightsFile::Open(FolderOf(fence.job), fence, layout)});
    done(opened.first->second.file.status());
  });
}

void FileWeightsStore::Write(v1::WeightsPiece piece,
                             std::function<void(absl::Status)> done) {
  loop_.Post([this, piece = std::move(piece), done] {
    const absl::StatusOr<WeightsFile*> file = Find(FenceOf(piece));
    done(file.ok() ? (*file)->Write(piece.tensor(), piece.offset_bytes(),
                                    piece.data())
                   : file.status());
  });
}

void FileWeightsStore::Sync(const Fence& fence,
                            std::function<void(absl::Status)> done) {
  loop_.Post([this, fence, done] {
    const absl::StatusOr<WeightsFile*> file = Find(fence);
    done(file.ok() ? (*file)->Sync() : file.status());
  });
}

void FileWeightsStore::Save(
    const Fence& fence,
    std::function<void(absl::StatusOr<SavedWeights>)> done) {
  loop_.Post([this, fence, done] {
    const absl::StatusOr<WeightsFile*> file = Find(fence);
    if (!file.ok()) {
      done(file.status());
      return;
    }
    absl::StatusOr<SavedWeights> saved = (*file)->Save();
    if (saved.ok()) expected_.erase(fence.job);
    done(std::move(saved));
  });
}

void FileWeightsStore::Forget(JobId job) {
  loop_.Post([this, job] {
    expected_.erase(job);
    std::error_code ignored;  // the rest is overwritten or deleted by hand
    std::filesystem::remove_all(FolderOf(job), ignored);
  });
}

void FileWeightsStore::Read(
    JobId job, const std::string& name, int64_t offset, int64_t limit,
    std::function<void(absl::StatusOr<v1::WeightsChunk>)> done) {
  const std::string path = absl::StrCat(FolderOf(job), "/", name);
  loop_.Post([=] { done(ReadPart(path, offset, limit)); });
}

absl::StatusOr<v1::WeightsChunk> FileWeightsStore::ReadPart(
    const std::string& path, int64_t offset, int64_t limit) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError("open", path, errno);
  struct stat info = {};
  absl::StatusOr<std::string> data = fstat(file, &info) == 0
                                         ? ReadAt(file, path, offset, limit)
                                         : FileError("look at", path, errno);
  close(file);
  PACELINE_RETURN_IF_ERROR(data.status());
  v1::WeightsChunk chunk;
  chunk.set_data(*std::move(data));
  chunk.set_total_bytes(info.st_size);
  return chunk;
}

}  // namespace paceline
