#include "coordinator/store/file_weights_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/jobs/records.h"
#include "core/base/errors.h"
#include "core/base/text.h"

namespace paceline {

FileWeightsStore::FileWeightsStore(std::string folder)
    : folder_(std::move(folder)), loop_("weights") {}

std::string FileWeightsStore::FolderOf(JobId job) const {
  return absl::StrCat(folder_, "/", job.value);
}

absl::StatusOr<WeightsFile*> FileWeightsStore::Find(const Fence& fence) {
  const auto found = expected_.find(fence.job);
  if (found == expected_.end() || found->second.fence != fence) {
    return Aborted("no weights are expected of job ", fence.job.value,
                   ", attempt ", fence.attempt, ", plan ", fence.plan_version);
  }
  PACELINE_RETURN_IF_ERROR(found->second.file.status());
  return found->second.file->get();
}

void FileWeightsStore::Open(const Fence& fence, SafetensorsLayout layout,
                            StatusDone done) {
  loop_.Post([this, fence, layout = std::move(layout), done] {
    expected_.erase(fence.job);
    auto file = layout.tensors.empty()
                    ? Unavailable("job ", fence.job.value,
                                  " has not said yet how much there will be")
                    : WeightsFile::Open(FolderOf(fence.job), fence, layout);
    done(layout.tensors.empty() ? absl::OkStatus() : file.status());
    expected_.emplace(fence.job, Expected{fence, std::move(file)});
  });
}

void FileWeightsStore::Write(v1::WeightsPiece piece, StatusDone done) {
  loop_.Post([this, piece = std::move(piece), done] {
    const absl::StatusOr<WeightsFile*> file = Find(FenceOf(piece));
    done(file.ok() ? (*file)->Write(piece.tensor(), piece.offset_bytes(),
                                    piece.data())
                   : file.status());
  });
}

void FileWeightsStore::Sync(const Fence& fence, StatusDone done) {
  loop_.Post([this, fence, done] {
    const absl::StatusOr<WeightsFile*> file = Find(fence);
    done(file.ok() ? (*file)->Sync() : file.status());
  });
}

void FileWeightsStore::Save(const Fence& fence, Done<SavedWeights> done) {
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

void FileWeightsStore::Read(JobId job, const std::string& name, int64_t offset,
                            int64_t limit, Done<v1::WeightsChunk> done) {
  const std::string path = absl::StrCat(FolderOf(job), "/", name);
  loop_.Post([=] { done(ReadPart(path, offset, limit)); });
}

absl::StatusOr<v1::WeightsChunk> FileWeightsStore::ReadPart(
    const std::string& path, int64_t offset, int64_t limit) {
  const OpenFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return FileError("open", path, errno);
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return FileError("look at", path, errno);
  v1::WeightsChunk chunk;
  PACELINE_ASSIGN_OR_RETURN(*chunk.mutable_data(),
                            ReadAt(file.get(), path, offset, limit));
  chunk.set_total_bytes(info.st_size);
  return chunk;
}

namespace {

constexpr char kPartialName[] = "weights.partial";
constexpr char kProgressName[] = "weights.progress";

// Rows of predictions are equal in every attempt, so a later attempt goes on
// where an earlier one ended.
std::string RunLine(Fence fence, const SafetensorsLayout& layout) {
  if (layout.content == "predictions") fence.attempt = fence.plan_version = 0;
  return absl::StrCat("ranges ", fence.job.value, " ", fence.attempt, " ",
                      fence.plan_version, " ", layout.file_bytes);
}

// -1: there is none.
int64_t FileBytes(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? int64_t{info.st_size} : -1;
}

// Joins [begin, end) with the ranges that it touches.
void AddRange(std::map<int64_t, int64_t>& ranges, int64_t begin, int64_t end) {
  auto next = ranges.upper_bound(begin);
  if (next != ranges.begin() && std::prev(next)->second >= begin) --next;
  while (next != ranges.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = ranges.erase(next);
  }
  ranges[begin] = end;
}

}  // namespace

WeightsFile::WeightsFile(std::string folder, const Fence& fence,
                         SafetensorsLayout layout)
    : folder_(std::move(folder)),
      name_(absl::StrCat(layout.content, ".safetensors")),
      run_line_(RunLine(fence, layout)),
      header_(std::move(layout.header)),
      file_bytes_(layout.file_bytes) {
  for (TensorPlace& place : layout.tensors) {
    const std::string name = place.name;
    tensors_[name].place = std::move(place);
  }
}

std::string WeightsFile::PathOf(absl::string_view name) const {
  return absl::StrCat(folder_, "/", name);
}

absl::StatusOr<std::unique_ptr<WeightsFile>> WeightsFile::Open(
    const std::string& folder, const Fence& fence, SafetensorsLayout layout) {
  PACELINE_RETURN_IF_ERROR(MakeFolders(folder));
  std::unique_ptr<WeightsFile> weights(
      new WeightsFile(folder, fence, std::move(layout)));
  const bool partial = FileBytes(weights->PathOf(kPartialName)) >= 0;
  if (!partial &&
      FileBytes(weights->PathOf(weights->name_)) == weights->file_bytes_) {
    return weights;  // saved before, but the coordinator died
  }
  PACELINE_RETURN_IF_ERROR(weights->CanResume() ? weights->Resume()
                                                : weights->Begin());
  return weights;
}

bool WeightsFile::CanResume() const {
  std::ifstream progress(PathOf(kProgressName));
  std::string line;
  return std::getline(progress, line) && line == run_line_ &&
         FileBytes(PathOf(kPartialName)) == file_bytes_;
}

absl::Status WeightsFile::Begin() {
  const std::string path = PathOf(kPartialName);
  file_ = OpenFile(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_.is_open()) return FileError("make", path, errno);
  // Reserves all room now: better to fail at the start than at the end.  Room
  // that an earlier attempt reserved stays reserved, even if the disk is full
  // now.
  const int error = posix_fallocate(file_.get(), 0, file_bytes_);
  if (error != 0) return FileError("reserve room for", path, error);
  if (ftruncate(file_.get(), file_bytes_) != 0) {
    return FileError("cut", path, errno);
  }
  PACELINE_RETURN_IF_ERROR(WriteAt(file_.get(), path, 0, header_));
  PACELINE_RETURN_IF_ERROR(SyncFile(file_.get(), path));
  PACELINE_RETURN_IF_ERROR(WriteFileAtomically(PathOf(kProgressName),
                                               absl::StrCat(run_line_, "\n")));
  return Resume();
}

absl::Status WeightsFile::Resume() {
  const std::string path = PathOf(kPartialName);
  if (!file_.is_open())
    file_ = OpenFile(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file_.is_open()) return FileError("open", path, errno);
  const std::string notes = PathOf(kProgressName);
  progress_ = OpenFile(open(notes.c_str(), O_WRONLY | O_CLOEXEC));
  if (!progress_.is_open()) return FileError("open", notes, errno);
  std::ifstream lines(notes);
  std::string line;
  std::getline(lines, line);  // the run
  progress_bytes_ = std::ssize(line) + 1;
  // A line without an end was cut short.
  while (std::getline(lines, line) && !lines.eof()) {
    progress_bytes_ += std::ssize(line) + 1;
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 2));
    int64_t begin = 0, end = 0;
    if (parts.size() < 3 || !absl::SimpleAtoi(parts[0], &begin) ||
        !absl::SimpleAtoi(parts[1], &end)) {
      continue;
    }
    const auto found = tensors_.find(parts[2]);
    if (found == tensors_.end() || begin < 0 || begin >= end ||
        end > found->second.place.bytes) {
      continue;
    }
    AddRange(found->second.written, begin, end);
    found->second.noted = found->second.written;
  }
  return absl::OkStatus();
}

absl::Status WeightsFile::Write(const std::string& name, int64_t offset_bytes,
                                absl::string_view data) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return InvalidArgument("the model has no tensor named '",
                           name.substr(0, 200), "'");
  }
  Tensor& tensor = found->second;
  const int64_t bytes = static_cast<int64_t>(data.size());
  if (offset_bytes < 0 || offset_bytes > tensor.place.bytes ||
      bytes > tensor.place.bytes - offset_bytes) {
    return InvalidArgument("tensor ", name, " has ", tensor.place.bytes,
                           " bytes, got ", bytes, " at ", offset_bytes);
  }
  if (!file_.is_open() || bytes == 0) return absl::OkStatus();
  PACELINE_RETURN_IF_ERROR(WriteAt(file_.get(), PathOf(kPartialName),
                                   tensor.place.offset + offset_bytes, data));
  AddRange(tensor.written, offset_bytes, offset_bytes + bytes);
  return absl::OkStatus();
}

absl::Status WeightsFile::Sync() {
  if (!file_.is_open()) return absl::OkStatus();
  PACELINE_RETURN_IF_ERROR(SyncFile(file_.get(), PathOf(kPartialName)));
  std::string lines;
  for (const auto& [name, tensor] : tensors_) {
    for (const auto& range : tensor.written) {
      if (tensor.noted.count(range.first) > 0 &&
          tensor.noted.at(range.first) == range.second) {
        continue;
      }
      absl::StrAppend(&lines, range.first, " ", range.second, " ", name, "\n");
    }
  }
  if (lines.empty()) return absl::OkStatus();
  const std::string notes = PathOf(kProgressName);
  // Drops a line that was cut short; else the next one would continue it.
  if (ftruncate(progress_.get(), progress_bytes_) != 0) {
    return FileError("cut", notes, errno);
  }
  PACELINE_RETURN_IF_ERROR(
      WriteAt(progress_.get(), notes, progress_bytes_, lines));
  PACELINE_RETURN_IF_ERROR(SyncFile(progress_.get(), notes));
  progress_bytes_ += std::ssize(lines);
  for (auto& [name, tensor] : tensors_) tensor.noted = tensor.written;
  return absl::OkStatus();
}

absl::Status WeightsFile::CheckWhole() const {
  int missing = 0;
  std::string first;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.whole()) continue;
    if (missing++ == 0) first = name;
  }
  if (missing == 0) return absl::OkStatus();
  return FailedPrecondition(missing, " of ", Counted(tensors_.size(), "tensor"),
                            " did not arrive whole; the first is ", first);
}

absl::StatusOr<SavedWeights> WeightsFile::Save() {
  const std::string path = PathOf(name_);
  if (file_.is_open()) {
    PACELINE_RETURN_IF_ERROR(CheckWhole());
    const std::string partial = PathOf(kPartialName);
    PACELINE_RETURN_IF_ERROR(SyncFile(file_.get(), partial));
    if (rename(partial.c_str(), path.c_str()) != 0) {
      return FileError("rename to", path, errno);
    }
    file_ = OpenFile();
    PACELINE_RETURN_IF_ERROR(SyncFolder(folder_));
    unlink(PathOf(kProgressName).c_str());
  }
  const OpenFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return FileError("open", path, errno);
  PACELINE_ASSIGN_OR_RETURN(const std::string hash,
                            Sha256OfFile(file.get(), path));
  return SavedWeights{path, hash, file_bytes_};
}

}  // namespace paceline
